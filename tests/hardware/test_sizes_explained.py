"""hardware/sizes_explained: every batch and high recomputed, every mismatch with its cause.

``data/zoneinfo/RECORDING.TAG`` are files of recorded guests: Debian kernels 6.1.192, 6.12.107,
6.18.15, 6.19.14 and 7.2.13, with the sysctl set, under pressure (boosted watermarks), with two
nodes, eight CPUs, transparent huge pages, and right after boot.
"""

import json
import time
from contextlib import suppress

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import pcpmodel as pm
from helpers.paths import SHARED
from helpers.zoneinfo import DATA, NUMA, kernel_text, one, text_of
from pcpmodel.cli import main
from pcpmodel.hardware.sizes_explained import explain, infer_release
from pcpmodel.kernel import sizing
from pcpmodel.proc import zoneinfo
from pcpmodel.proc.cpulist import cpu_list

SOURCES = pytest.mark.skipif(not SHARED.is_dir(), reason="needs the sources beside the checkout")
RELEASES = {
    series: f"debian-{version}"
    for series, version in (
        ("6.1", "6.1.192"),
        ("6.12", "6.12.107"),
        ("6.18", "6.18.15"),
        ("6.19", "6.19.14"),
        ("7.2", "7.2.13"),
    )
}
#: Setting of vm.percpu_pagelist_high_fraction at each snapshot of the fraction recordings.
FRACTIONS = {"snap0": 8, "snap1": 1000, "snap2": 0}
#: The one recorded zone whose sizes date from a moment of boot.
LATE_BOOT = {("7.2-boot-4cpu", "DMA32")}


def settings_of(path):
    """Recording, release and sysctl of a recorded file."""
    if path.name.startswith("zoneinfo."):
        recording, tag = path.parent.name, path.name.removeprefix("zoneinfo.")
    else:
        recording, _, tag = path.name.removesuffix(".gz").rpartition(".")
    fraction = FRACTIONS.get(tag, 0) if "fraction" in recording else 0
    return recording, RELEASES[recording.partition("-")[0]], fraction


def explain_recorded(path):
    recording, release, fraction = settings_of(path)
    return recording, explain(zoneinfo.read(path), release, high_fraction=fraction)


def zone_of(explanation, name, node=0):
    return next(z for z in explanation.zones if (z.node, z.zone) == (node, name))


# Recorded kernels


@pytest.mark.parametrize("path", sorted(DATA.iterdir()), ids=lambda p: p.name)
def test_every_recorded_size_follows_from_the_rules(path):
    recording, explanation = explain_recorded(path)
    wrong = {(recording, z.zone) for z in explanation.zones if not z.match}
    assert wrong == {late for late in LATE_BOOT if late[0] == recording}
    assert all(bool(z.why) != z.match for z in explanation.zones)
    assert all("batch" in z.checked for z in explanation.zones)


@pytest.mark.parametrize("path", sorted(DATA.iterdir()), ids=lambda p: p.name)
def test_a_release_guessed_from_the_file_sizes_alike(path):
    _, release, fraction = settings_of(path)
    snapshots = zoneinfo.read(path)
    guessed = explain(snapshots, high_fraction=fraction)
    known = explain(snapshots, release, high_fraction=fraction)
    assert "oldest known" in guessed.assumptions[0]
    for mine, theirs in zip(guessed.zones, known.zones, strict=True):
        assert mine.match == theirs.match
        assert (mine.batch, mine.high, mine.high_min, mine.high_max) == (
            theirs.batch,
            theirs.high,
            theirs.high_min,
            theirs.high_max,
        )


@pytest.mark.parametrize(
    ("file", "node", "zone", "managed", "low", "batch", "high", "high_min", "high_max"),
    [
        ("6.1-pf1-4cpu.before", 0, "DMA32", 757817, 2265, 63, 566, None, None),
        ("6.1-boot-2cpu.end", 0, "DMA32", 757817, 2260, 63, 1130, None, None),
        ("6.1-fraction-4cpu.snap0", 0, "DMA32", 757817, 2265, 63, 23681, None, None),
        ("6.1-fraction-4cpu.snap1", 0, "DMA", 3840, 10, 1, 4, None, None),
        ("6.1-pressure-4cpu.snapA", 0, "DMA32", 116301, 833, 31, 208, None, None),
        ("6.12-thp-4cpu.before", 0, "Normal", 243710, 5126, 63, None, 1281, 7615),
        ("6.12-numa2-4cpu.before", 0, "DMA32", 502363, 1501, 63, None, 750, 31397),
        ("6.18-pressure-4cpu.snapA", 0, "DMA32", 114479, 827, 31, None, 206, 3577),
        ("7.2-numa2-4cpu.before", 1, "Normal", 253581, 757, 63, None, 378, 15848),
        ("7.2-pf1-8cpu.before", 0, "DMA32", 755535, 2260, 63, None, 282, 11805),
        ("7.2-fraction-4cpu.snap0", 0, "DMA32", 755535, 2260, 63, None, 23610, 23610),
        ("7.2-fraction-4cpu.snap1", 0, "Normal", 243725, 728, 63, None, 252, 252),
        ("7.2-fraction-4cpu.snap2", 0, "DMA32", 755535, 2260, 63, None, 565, 23610),
    ],
)
def test_sizes_of_recorded_zones(file, node, zone, managed, low, batch, high, high_min, high_max):
    found = zone_of(explain_recorded(DATA / file)[1], zone, node)
    assert (found.managed, found.low_wmark_pages) == (managed, low)
    assert (found.batch, found.high, found.high_min, found.high_max) == (
        batch,
        high,
        high_min,
        high_max,
    )


def test_formulas_spell_the_arithmetic_out():
    _, explanation = explain_recorded(DATA / "7.2-pf1-8cpu.before")
    assert zone_of(explanation, "Normal").formula["high_min"] == (
        "low watermark 728; max(728 / 8 CPUs of node 0, 4 * 63) = max(91, 252) = 252"
    )
    assert zone_of(explanation, "DMA32").formula["high_max"] == (
        "755535 managed / 8 = 94441; "
        "max(94441 / 8 CPUs of node 0, 4 * 63) = max(11805, 252) = 11805"
    )
    assert zone_of(explanation, "DMA32").formula["batch"] == (
        "min(755535 managed >> 12, 64) = 64; largest power of two up to 64 + 32, less 1 = 63"
    )
    _, old = explain_recorded(DATA / "6.1-pf1-4cpu.before")
    assert zone_of(old, "DMA").formula["batch"] == (
        "min(3840 managed >> 10, 256) / 4 = 0, at least 1; "
        "largest power of two up to 1 + 0, less 1 = 0, at least 1: batch 1"
    )


def test_the_boost_is_taken_off_the_printed_watermark():
    info = one("6.18-pressure-4cpu.snapA")
    boosted = next(z for z in info.populated if z.boost)
    assert boosted.low_wmark_pages == boosted.low - boosted.boost == 827
    _, explanation = explain_recorded(DATA / "6.18-pressure-4cpu.snapA")
    said = zone_of(explanation, boosted.name).formula["high_min"]
    assert f"low watermark 827 ({boosted.low} printed less boost {boosted.boost})" in said


def test_limits_that_the_kernel_does_not_print_are_said_to_be_unprinted():
    _, explanation = explain_recorded(DATA / "6.12-thp-4cpu.before")
    zone = zone_of(explanation, "DMA32")
    assert zone.checked == ("batch",)
    assert zone.reported["high_min"] is zone.reported["high_max"] is None
    assert "3978 (not printed)" in str(explanation)
    assert "tuned within 3978 ... 23639" in zone.formula["high"]


def test_a_high_outside_its_limits_waits_for_its_next_use():
    _, explanation = explain_recorded(DATA / "7.2-fraction-4cpu.snap1")
    zone = zone_of(explanation, "DMA32")
    assert zone.match
    assert "1394: clamped when that CPU next uses the list" in zone.formula["high"]


def test_sizes_from_an_earlier_moment_of_boot_are_a_mismatch_with_its_cause():
    _, explanation = explain_recorded(DATA / "7.2-boot-4cpu.end")
    zone = zone_of(explanation, "DMA32")
    assert (zone.high_max, zone.reported["high_max"], zone.match) == (23610, 23531, False)
    assert zone.why == (
        "high_max 23531 is what 752992 ... 753023 managed pages give; there are 755535 now: the "
        "zone was sized with 2512 ... 2543 pages fewer and not since; late boot and balloons "
        "change its pages without sizing it anew",
    )
    assert not explanation.all_match


def test_the_boot_value_of_6_12_would_be_explained_alike_if_it_were_printed():
    # That kernel keeps 23579 but prints no high_max.
    text = kernel_text([(0, "DMA32", 756461, 2258, 0, 63, 564, 23579)], cpus=4)
    zone = zone_of(explain(zoneinfo.parse(text), "v6.18"), "DMA32")
    assert zone.high_max == 23639
    assert "high_max 23579 is what 754528 ... 754559 managed pages give" in zone.why[0]


@pytest.mark.parametrize("path", sorted(DATA.iterdir()), ids=lambda p: p.name)
def test_one_min_free_kbytes_explains_every_watermark(path):
    for info in zoneinfo.read(path):
        old = path.name.startswith("6.1-")  # ZONE_MOVABLE still counted as low memory
        memory = [sizing.ZoneMemory(z.managed, old or z.name != "Movable") for z in info.zones]
        shared = sum(z.min - z.boost for z in info.zones if z.name != "Movable")
        fits = []
        for pages_min in range(shared, shared + len(info.zones) + 1):  # shares are rounded down
            marks = sizing.setup_per_zone_wmarks(memory, 4 * pages_min)
            fits.append(
                all(
                    (m.min, m.low, m.high) == (z.min - z.boost, z.low - z.boost, z.high - z.boost)
                    and z.promo in (None, m.promo + z.boost)
                    for m, z in zip(marks, info.zones, strict=True)
                )
            )
        # The share-out of the boot recordings was made with the memory of an earlier moment.
        assert any(fits) == ("boot" not in path.name)


# Nodes and CPUs


def test_several_nodes_are_assumed_alike_and_it_is_said():
    info = one("7.2-numa2-4cpu.before")
    assumed = explain(info, "v7.2")
    assert assumed.all_match
    assert "4 CPUs spread evenly over 2 nodes, 2 each" in assumed.assumptions[0]
    for cpus in (2, [2, 2], {0: 2, 1: 2}):
        explanation = explain(info, "v7.2", cpus)
        assert explanation.assumptions == ()
        assert [z.as_dict() for z in explanation.zones] == [z.as_dict() for z in assumed.zones]


def test_a_node_without_cpus_is_divided_by_all_online_cpus():
    text = kernel_text(
        [
            (0, "Normal", 1 << 20, 16000, 0, 63, 16000 // 3, (1 << 20) // 8 // 3),
            (1, "Normal", 1 << 22, 8000, 0, 63, 8000 // 3, (1 << 22) // 8 // 3),
        ],
        cpus=3,
    )
    explanation = explain(zoneinfo.parse(text), "v6.18", [3, 0])
    assert explanation.all_match
    said = zone_of(explanation, "Normal", 1).formula["high_min"]
    assert "8000 / 3 online CPUs (the node has none)" in said


def test_uneven_cpus_on_several_nodes_must_be_given_where_no_limit_tells():
    info = zoneinfo.parse(
        kernel_text([(n, "Normal", 1 << 12, 99, 0, 1, 99, 170) for n in (0, 1)], cpus=3)
    )
    with pytest.raises(pm.InputError, match="--cpus-per-node"):
        explain(info)


def sized(zones, cpus):
    """A file of zones of 4 GiB and more; each (node, GiB, CPUs that share its pages)."""
    rows = []
    for node, gib, n in zones:
        managed = gib << 18
        low = managed // 900
        rows.append((node, "Normal", managed, low, 0, 63, max(low // n, 252), managed // 8 // n))
    return zoneinfo.parse(kernel_text(rows, cpus))


@pytest.mark.parametrize(
    ("zones", "cpus", "node_cpus"),
    [
        ([(0, 64, 4), (1, 192, 4)], 4, [4, 0]),
        ([(0, 64, 4), (1, 64, 4), (2, 192, 8), (5, 96, 8)], 8, [4, 4, 0, 0]),
        ([(0, 64, 6), (1, 64, 2)], 8, [6, 2]),
        ([(0, 64, 4), (1, 64, 4)], 8, [4, 4]),
        ([(0, 64, 4), (1, 0, 1)], 8, [4, 4]),  # the CPUs of a node without memory
    ],
)
def test_the_limits_tell_which_cpus_share_a_zone(zones, cpus, node_cpus):
    (info,) = sized(zones, cpus)
    found = explain(info, "v7.2")
    assert found.all_match
    assert [z.cpus for z in found.zones] == [n for _, gib, n in zones if gib]
    given = explain(info, "v7.2", node_cpus)
    assert [z.as_dict() for z in given.zones] == [z.as_dict() for z in found.zones]
    assert ("spread evenly" in found.assumptions[0]) == (len(set(node_cpus)) == 1)


@pytest.mark.parametrize(("batch", "release"), [(63, "v5.10"), (31, "v4.17")])
def test_limits_of_six_batches_are_of_kernels_before_the_watermark_gave_them(batch, release):
    """pageset_set_high_and_batch() until v5.13; only batch and high are printed."""
    rows = [(0, "DMA", 3840, 10, 0, 1, 0, 0), (0, "Normal", 1 << 24, 18641, 0, batch, 6 * batch, 0)]
    text = kernel_text(rows, 4, limits=False)
    text = "\n".join(t for t in text.split("\n") if t.split()[:1] not in (["promo"], ["boost"]))
    found = explain(zoneinfo.parse(text))
    assert (found.release.name, found.all_match) == (release, True)
    assert "six batches" in found.assumptions[0]


def test_a_node_without_cpus_that_was_sized_as_a_cpu_came_online_is_told_by_that():
    (info,) = sized([(0, 64, 4), (1, 192, 1)], 4)
    found = explain(info, "v7.2")
    assert [z.match for z in found.zones] == [True, False]
    assert found.zones[1].cpus == 4
    assert "counts in every node, alone where the node has none" in found.zones[1].why[0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (3, "does not add up"),
        (0, "does not add up"),
        ([2, 1], "does not add up"),
        ([5, -1], "does not add up"),
        ({0: 2, 7: 2}, "does not add up"),
        ([4], "has 1 numbers; the nodes are 0, 1"),
        ([2, 2, 0], "has 3 numbers"),
        ([2.0, 2], "does not add up"),
        ("2,2", "is not a number"),
        (2.0, "is not a number"),
        (True, "is not a number"),
    ],
)
def test_cpus_that_contradict_the_file_are_refused(given, said):
    with pytest.raises(pm.InputError, match=said):
        explain(one("7.2-numa2-4cpu.before"), "v7.2", given)


def test_a_cpu_that_came_online_last_shows_in_the_other_node():
    # Node 0 was sized in the callback of the CPU of node 1: 2 + 1 CPUs.
    text = kernel_text(
        [
            (0, "Normal", 1 << 20, 16000, 0, 63, 16000 // 3, (1 << 20) // 8 // 3),
            (1, "Normal", 1 << 20, 16000, 0, 63, 16000 // 2, (1 << 20) // 8 // 2),
        ],
        cpus=4,
    )
    explanation = explain(zoneinfo.parse(text), "v6.18", 2)
    assert [z.match for z in explanation.zones] == [False, True]
    assert all("3 CPUs instead of 2 (a CPU that comes" in w for w in explanation.zones[0].why)


# Other causes of a mismatch


def test_a_sysctl_that_was_not_given_is_guessed():
    for name in ("7.2-fraction-4cpu.snap0", "6.1-fraction-4cpu.snap0"):
        for zone in explain(one(name), high_fraction=0).zones:
            assert "what percpu_pagelist_high_fraction 8 gives" in zone.why[0]
    for zone in explain(one("7.2-fraction-4cpu.snap1"), high_fraction=0).zones:
        assert "or more gives" in " ".join(zone.why)


@pytest.mark.parametrize("path", sorted(DATA.iterdir()), ids=lambda p: p.name)
def test_a_sysctl_that_was_not_given_is_that_of_the_limits(path):
    """As of advise; 1000 leaves four batches, which any fraction from there on does."""
    recording, release, fraction = settings_of(path)
    explanation = explain(zoneinfo.read(path), release)
    taken = explanation.high_fraction
    assert taken in (0, fraction) or 0 < taken < fraction == 1000
    wrong = {(recording, z.zone) for z in explanation.zones if not z.match}
    assert wrong == {late for late in LATE_BOOT if late[0] == recording}
    said = "which is taken to be set (--high-fraction says otherwise)"
    assert (said in " ".join(explanation.assumptions)) == (taken > 0)
    known = explain(zoneinfo.read(path), release, high_fraction=fraction)
    assert said not in " ".join(known.assumptions)


def test_a_sysctl_that_changed_between_snapshots_is_none_of_the_series():
    series = [one(f"7.2-fraction-4cpu.snap{k}") for k in (0, 1)]
    assert [explain(info).high_fraction > 0 for info in series] == [True, True]
    assert explain(series).high_fraction == 0


def test_disabled_lists_are_recognised():
    text = kernel_text([(0, "Normal", 1 << 20, 16000, 0, 1, 0, 0)], cpus=2)
    (zone,) = explain(zoneinfo.parse(text)).zones
    assert zone.why == ("batch 1 and no high: the lists were disabled, or not sized yet",)


def test_one_cpu_that_differs_is_named():
    text = kernel_text([(0, "Normal", 1 << 20, 16000, 0, 63, 4000, 32768)], cpus=4)
    text = text.replace("batch:    63", "batch:    31", 1)
    (zone,) = explain(zoneinfo.parse(text)).zones
    assert zone.reported["batch"] == [31, 63]
    assert zone.why == (
        "batch 31 (CPU 0) is what 90112 ... 176127 managed pages give; the zone has 1048576 now",
    )


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((62, 4000, 32768), "batch 62 is what no zone of any size gets"),
        ((63, 200, 32768), "high_min 200 is under 4 * batch = 252"),
        ((63, 5000, 32768), "high_min 5000 is what 20000 ... 20003 pages of low watermark give"),
        ((63, 4000, 40000), "pages more and not since"),
    ],
)
def test_what_would_have_given_a_wrong_number(sizes, said):
    text = kernel_text([(0, "Normal", 1 << 20, 16000, 0, *sizes)], cpus=4)
    (zone,) = explain(zoneinfo.parse(text)).zones
    assert not zone.match
    assert said in " ".join(zone.why)


def test_cpus_that_are_possible_and_not_online_are_told_by_both_limits():
    """s390: cpumask_of_node() has every CPU that is possible."""
    managed, low = 1 << 24, 27000
    rows = [(0, "Normal", managed, low, 0, 63, low // 36, managed // 8 // 36)]
    (zone,) = explain(zoneinfo.parse(kernel_text(rows, 8))).zones
    assert not zone.match
    assert len(zone.why) == 2
    assert all("with 36 CPUs where 8 are online: on s390 all that" in w for w in zone.why)


def test_many_cpus_are_named_in_a_few_words():
    assert cpu_list([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
    assert cpu_list([]) == ""
    text = kernel_text([(0, "Normal", 1 << 24, 99, 0, 63, 252, 4096)], cpus=512)
    for cpu in range(400):
        text = text.replace("high:     252", f"high:     {1000 + cpu}", 1)
    text = text.replace("batch:    63", "batch:    31", 300)
    explanation = explain(zoneinfo.parse(text))
    (zone,) = explanation.zones
    assert zone.formula["high"].startswith("401 values in 252 ... 1399 reported")
    assert zone.why[0].startswith("batch 31 (CPU 0-299) is what")
    assert max(map(len, str(explanation).splitlines())) < 200


def test_large_pages_have_small_batches():
    text = kernel_text([(0, "Normal", 1 << 20, 16000, 0, 3, 4000, 32768)], cpus=4)
    info = zoneinfo.parse(text)
    for release in ("v6.18", "v6.19"):
        assert explain(info, release, page_size_bytes=65536).all_match
        assert not explain(info, release, page_size_bytes=4096).all_match
        found = explain(info, release)
        assert found.all_match
        assert found.page_size_bytes == 65536
        assert "Assumed: pages of 64 KiB: the batches of 4 of 4 lists" in str(found)


def test_pages_are_of_4_kib_where_the_batches_do_not_say_otherwise():
    small = kernel_text([(0, "Normal", 3000, 40, 0, 1, 10, 93)], cpus=4)
    assert explain(zoneinfo.parse(small)).page_size_bytes == 4096
    assert "pages of" not in " ".join(explain(one("7.2-thp-4cpu.before")).assumptions)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"release": "v6.5"}, "unknown release 'v6.5'"),
        ({"high_fraction": 7}, "percpu_pagelist_high_fraction=7"),
        ({"high_fraction": -8}, "percpu_pagelist_high_fraction=-8"),
        ({"page_size_bytes": 8192}, "allowed: 4096, 16384, 65536"),
    ],
)
def test_wrong_arguments_are_refused(options, said):
    with pytest.raises(pm.InputError, match=said):
        explain(one("7.2-thp-4cpu.before"), **options)


def test_no_snapshot_is_refused():
    with pytest.raises(pm.InputError, match="no snapshot"):
        explain([])


def test_a_tuned_high_of_before_v6_11_is_told_from_a_fixed_one():
    fixed = text_of("6.1-pf1-4cpu.before")
    assert infer_release(zoneinfo.parse(fixed))[0].name == "v6.6"
    tuned = fixed.replace("high:  566", "high:  601", 1)
    assert infer_release(zoneinfo.parse(tuned))[0].name == "v6.7"
    unused = fixed.replace("high:  566", "high:  0")
    assert infer_release(zoneinfo.parse(unused))[0].name == "v6.7"


# Reader


def test_a_series_is_split_at_its_tags():
    series = zoneinfo.read(DATA / "6.19-idle-decay-4cpu.series.gz")
    assert len(series) == len({info.tag for info in series}) > 3
    explanation = explain(series, "debian-6.19.14")
    assert len(explanation.zones) == 3 * len(series)
    assert explanation.zones[0].title == f"{series[0].tag}: node 0 DMA"


def test_hundreds_of_cpus_on_many_nodes_are_quick():
    nodes, per_node, low, managed = 8, 64, 1_000_000, 1 << 26
    high_min, high_max = low // per_node, managed // 8 // per_node
    text = kernel_text(
        [
            (n, name, managed, low, 0, 63, high_min, high_max)
            for n in range(nodes)
            for name in ("DMA32", "Normal")
        ],
        cpus=nodes * per_node,
    )
    start = time.process_time()  # whoever else is busy
    explanation = explain(zoneinfo.parse(text))
    assert explanation.all_match
    assert len(explanation.zones) == 16
    assert time.process_time() - start < 5


@given(st.data())
def test_damage_of_any_kind_is_either_harmless_or_an_input_error(data):
    text = text_of("7.2-numa2-4cpu.before")
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(start + 200, len(text))))
    junk = data.draw(st.text(st.characters(max_codepoint=127), max_size=50))
    with suppress(pm.InputError):
        explanation = explain(zoneinfo.parse(text[:start] + junk + text[end:]))
        assert len(explanation.zones) == len(json.loads(json.dumps(explanation.as_dict()))["zones"])


# Files and the command line


def run(*arguments):
    return CliRunner().invoke(main, ["explain", *map(str, arguments)])


def test_the_verb_prints_every_zone_as_json():
    result = run("--zoneinfo", DATA / NUMA, "--cpus-per-node", "2,2", "--release", "v7.2", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["all_match"] is True
    assert (found["release"], found["assumptions"]) == ("v7.2", [])
    zone = found["zones"][-1]
    assert (zone["node"], zone["zone"], zone["managed"]) == (1, "Normal", 253581)
    assert (zone["batch"], zone["high_min"], zone["high_max"]) == (63, 378, 15848)
    assert zone["reported"] == {
        "batch": 63,
        "high": [378, 695, 723, 10618],
        "high_min": 378,
        "high_max": 15848,
    }
    assert zone["match"] is True
    assert set(zone["formula"]) == {"batch", "high_min", "high_max", "high"}


def test_the_verb_prints_a_table_with_the_formulas():
    result = run("--zoneinfo", DATA / "6.1-fraction-4cpu.snap0", "--high-fraction", 8)
    assert result.exit_code == 0
    assert "757817 managed / 8 = 94727; max(94727 / 4 CPUs of node 0" in result.stdout
    assert result.stdout.count("  ok\n") == 3


def test_a_mismatch_is_exit_code_1_after_the_result():
    result = run("--zoneinfo", DATA / "7.2-boot-4cpu.end", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["all_match"] is False
    assert "1 of 3 zones do not match: node 0 DMA32" in result.stderr


def test_a_page_of_html_for_the_notebook_is_escaped_and_complete():
    page = explain_recorded(DATA / "7.2-boot-4cpu.end")[1]._repr_html_()
    assert page.count("<tr>") == 4
    assert "23610, reported 23531" in page
    assert "managed &gt;&gt; 12" in page


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--zoneinfo", DATA / NUMA, "--cpus-per-node", "3"], "does not add up"),
        (["--zoneinfo", DATA / NUMA, "--cpus-per-node", "two"], "is not N or N,N,..."),
        (["--zoneinfo", DATA / NUMA, "--cpus-per-node", ""], "is not N or N,N,..."),
        (["--zoneinfo", DATA / NUMA, "--release", "v9"], "unknown release 'v9'"),
        (["--zoneinfo", DATA / NUMA, "--high-fraction", "7"], "EINVAL"),
        (["--zoneinfo", DATA / NUMA, "--high-fraction", "x"], "not a valid integer"),
        (["--zoneinfo", DATA / NUMA, "--page-size", "5000"], "allowed: 4096"),
        (["--page-size", "4096"], "is for --zoneinfo FILE"),
        (["--zoneinfo", DATA / "absent"], "absent: cannot be read: No such file"),
        (["--zoneinfo", DATA], "is a directory; expected a regular file"),
        (["--zoneinfo", __file__], "row 1"),
        (["surplus"], "surplus: cannot be read"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_prints_no_result(arguments, said):
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


@SOURCES
def test_all_recorded_files_agree_but_the_one_of_boot():
    files = sorted(SHARED.glob("traces/*/zoneinfo.*"))
    assert len(files) >= 153
    wrong, pagesets = set(), 0
    for path in files:
        recording, explanation = explain_recorded(path)
        pagesets += sum(len(z.pagesets) for i in zoneinfo.read(path) for z in i.populated)
        wrong |= {(recording, z.zone) for z in explanation.zones if not z.match}
    assert wrong == LATE_BOOT
    assert pagesets >= 2772


@SOURCES
def test_the_committed_files_are_those_recorded():
    for path in DATA.iterdir():
        recording, _, tag = path.name.removesuffix(".gz").rpartition(".")
        suffix = ".gz" if path.suffix == ".gz" else ""
        source = SHARED / "traces" / recording / f"zoneinfo.{tag}{suffix}"
        assert path.read_bytes() == source.read_bytes()

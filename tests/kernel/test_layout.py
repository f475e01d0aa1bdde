"""struct per_cpu_pages against the published listings, C's own rules and running kernels.

``data/layout/{base,patched}.txt`` are the two pahole listings of the cover letter of "mm: PCP high
auto-tuning" V2 (26 Sep 2023, 20230926060911.266511-1), white space folded; ``v3.csv`` is the table
of V3 (16 Oct 2023, 20231016053002.756205-1).
"""

import csv
import ctypes
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pcpmodel as pm
from helpers.paths import SHARED, TESTS
from pcpmodel.kernel.layout import layout

DATA = TESTS / "data" / "layout"
SOURCES = pytest.mark.skipif(not SHARED.is_dir(), reason="needs the sources beside the checkout")
NAMES = [r.name for r in pm.releases()]
OLDER = {
    "v4.17": ["count", "high", "batch", "lists"],
    "v5.10": ["count", "high", "batch", "lists"],
    "v5.17": ["count", "high", "batch", "free_factor", "expire", "lists"],
}


def folded(text):
    return " ".join(text.split())


@pytest.mark.parametrize(("listing", "release"), [("base", "v6.6"), ("patched", "v6.6+p10")])
def test_the_listing_of_v2_s_cover_letter_comes_out_word_for_word(listing, release):
    assert folded(str(layout(release))) == folded((DATA / f"{listing}.txt").read_text())


def test_the_table_of_v3_s_cover_letter_is_that_of_v6_7():
    rows = list(csv.DictReader((DATA / "v3.csv").open()))
    values = [(r["member"], r["offset_bytes"], int(r["size_or_value"])) for r in rows]
    new = layout("v6.7")
    expected = []
    for m in new.members:
        expected.append((m.declarator, str(m.offset_bytes), m.size_bytes))
        if m.hole_bytes:
            expected.append(("_hole", str(m.offset_bytes + m.size_bytes), m.hole_bytes))
    expected += [
        ("_total_size_bytes", "", new.size_bytes),
        ("_total_members", "", len(new.members)),
        ("_total_sum_members", "", new.sum_members_bytes),
        ("_total_padding", "", new.padding_bytes),
    ]
    assert values == expected


C_TYPES = {
    "spinlock_t": ctypes.c_uint32,
    "int": ctypes.c_int,
    "short int": ctypes.c_short,
    "u8": ctypes.c_uint8,
    "struct list_head": ctypes.c_void_p * 2,
}

states = st.tuples(st.sampled_from(NAMES), st.sets(st.sampled_from([p.key for p in pm.patches()])))


@given(states)
def test_every_state_is_laid_out_as_c_does_it(state):
    name, patches = state
    release = pm.release(name)
    release = release.plus(*sorted(patches - set(release.patches)))
    new = layout(release)
    fields = [
        (m.name, C_TYPES[m.c_type] * m.length if m.length else C_TYPES[m.c_type])
        for m in new.members
    ]
    c_struct = type("PerCpuPages", (ctypes.Structure,), {"_fields_": fields})
    for m in new.members:
        field = getattr(c_struct, m.name)
        assert (field.offset, field.size) == (m.offset_bytes, m.size_bytes)
    align = 64 if release.rules.pcp_lock else 8
    assert 0 <= new.size_bytes - ctypes.sizeof(c_struct) < align
    assert new.size_bytes % align == 0
    assert new.size_bytes == new.sum_members_bytes + sum(new.holes_bytes) + new.padding_bytes


@pytest.mark.parametrize("name", [n for n in NAMES if n not in OLDER])
def test_members_follow_the_series(name):
    members = {m.name: m for m in layout(name).members}
    step = int(name[6:]) if name.startswith("v6.6+p") else 99
    if name in ("v6.6", "debian-6.1.192"):
        step = 0
    merged = step == 99
    expected = {
        "flags": step >= 1,
        "alloc_factor": step >= 5,
        "high_min": step >= 6,
        "high_max": step >= 6,
        "count_min": step in (9, 10),
        "free_count": step >= 10,
        "free_factor": step < 10,
    }
    assert {m: m in members for m in expected} == expected
    assert members["expire"].c_type == ("u8" if step >= 5 else "short int")
    if step < 10:
        assert members["free_factor"].c_type == ("u8" if step >= 1 else "short int")
    two_thp_lists = name == "debian-6.1.192" or (merged and name != "v6.7")
    assert members["lists"].length == (14 if two_thp_lists else 13)


@pytest.mark.parametrize("name", OLDER)
def test_before_the_lock_the_structure_is_not_aligned_to_lines(name):
    older = layout(name)
    assert [m.name for m in older.members] == OLDER[name]
    assert older.size_bytes == 16 + 16 * older["lists"].length
    assert str(older).endswith("\n};")


def test_fourteen_lists_fill_the_four_lines_of_later_kernels():
    new = layout("v7.2")
    assert (new.size_bytes, new.cachelines, new.padding_bytes) == (256, 4, 0)
    assert "padding" not in str(new)
    with pytest.raises(KeyError):
        new["count_min"]


def test_an_unknown_release_is_refused():
    with pytest.raises(pm.InputError, match="did you mean"):
        layout("v6.8")


@SOURCES
def test_the_committed_listings_are_those_of_the_sources():
    seed = next(SHARED.glob("seeds/000_*")).read_text()
    for listing in ("base", "patched"):
        assert folded((DATA / f"{listing}.txt").read_text()) in folded(seed)
    source = SHARED / "published" / "struct_layout_v3.csv"
    assert (DATA / "v3.csv").read_bytes() == source.read_bytes()


@SOURCES
def test_offsets_are_those_read_from_running_kernels():
    seen = set()
    for meta in SHARED.glob("*traces/*/meta.json"):
        recording = json.loads(meta.read_text())
        package = recording["debian_package"].split()[1].partition("-")[0]
        members = {m.name: m for m in layout(f"debian-{package}").members}
        for key, offset in recording["struct_layout"].items():
            name = key.removeprefix("p_")
            if key == "p_nlists":
                assert members["lists"].length == offset
            elif key.startswith("p_"):
                assert offset == (members[name].offset_bytes if name in members else -1)
                seen.add((package, name))
    assert len({package for package, _ in seen}) == 8
    assert len(seen) == 8 * 11

"""What a tree calls otherwise than known kernels, and is the same."""

import re

import pytest

from helpers.trees import TREES, edited, needs_trees
from pcpmodel.errors import InputError
from pcpmodel.kernel.pcp import PerCpuPages
from pcpmodel.kernel.releases import release
from pcpmodel.kernel.tree import open_tree
from pcpmodel.kernel.tree_pages import compare

pytestmark = needs_trees

#: Of v7.3: what is called otherwise, how, and where.
NAMES = {
    "high": (r"pcp->high\b", "pcp->high_now", r"\bint high;", "int high_now;"),
    "flags": (r"pcp->flags\b", "pcp->pcp_flags", r"\bu8 flags;", "u8 pcp_flags;"),
    "alloc_factor": (r"pcp->alloc_factor\b", "pcp->shift", r"\bu8 alloc_factor;", "u8 shift;"),
    "PCPF_FREE_HIGH_BATCH": (
        r"\bPCPF_FREE_HIGH_BATCH\b", "PCPF_LARGE", r"\bPCPF_FREE_HIGH_BATCH\b", "PCPF_LARGE",
    ),
    "ZONE_BELOW_HIGH": (r"\bZONE_BELOW_HIGH\b", "ZONE_IS_LOW") * 2,
    "nr_pcp_high": (r"\bnr_pcp_high\b", "drains_from", "", ""),
}  # fmt: skip


def with_names(folder, names):
    """v7.3's source with these of `NAMES`, everywhere."""
    tree = edited(folder, base=TREES / "7.3.4")
    for name in names:
        for file, how in (
            ("mm/page_alloc.c", NAMES[name][:2]), ("mm/vmstat.c", NAMES[name][:2]),
            ("include/linux/mmzone.h", NAMES[name][2:]),
        ):  # fmt: skip
            path = tree / file
            if how[0] and path.exists():
                path.write_text(re.sub(*how, path.read_text()))
    return tree


@pytest.mark.parametrize("names", [*((n,) for n in NAMES), tuple(NAMES)], ids=" ".join)
def test_a_name_of_its_own_is_not_a_field_of_its_own(tmp_path, names):
    """It would begin at 0, and what sizes and events set it to would be missed."""
    tree = open_tree(with_names(tmp_path / "tree", names))
    plain = open_tree(TREES / "7.3.4")
    assert sorted(tree.renamed.values()) == sorted(names)
    assert tree.new_fields == ()
    assert compare(tree, "v7.3", 300_000)[1] == []
    assert tree.digest == plain.digest
    ours, theirs = (PerCpuPages(t, high_min=500, high_max=4000) for t in (tree, plain))
    assert [ours.alloc() for _ in range(900)] == [theirs.alloc() for _ in range(900)]
    assert any("Taken for what known kernels have" in said for said in tree.caveats)


def test_what_still_has_the_known_name_is_no_other_name_of_it(tmp_path):
    tree = edited(
        tmp_path / "tree", ((r"static int rmqueue_bulk\(", "static int rmqueue_lots("),),
        base=TREES / "7.3.4",
    )  # fmt: skip
    with pytest.raises(InputError, match=r"has no function rmqueue_bulk\(\)"):
        open_tree(tree)


def test_a_field_instead_of_another_is_one_of_its_own(tmp_path):
    """Every function that has it has another text, too."""
    text = (TREES / "7.3.4/mm/page_alloc.c").read_text()
    assert text.count("pcp->alloc_factor") > 3
    tree = edited(tmp_path / "tree", header=((r"u8 alloc_factor;", "u8 doublings;"),),
                  base=TREES / "7.3.4")  # fmt: skip
    path = tree / "mm/page_alloc.c"
    path.write_text(text.replace("pcp->alloc_factor", "(3 & pcp->doublings)").replace(
        "(3 & pcp->doublings)++", "pcp->doublings++").replace(
        "(3 & pcp->doublings) >>= 1", "pcp->doublings -= 1"))  # fmt: skip
    tree = open_tree(tree)
    assert tree.renamed == {}
    assert tree.new_fields == ("doublings",)
    said = "struct per_cpu_pages has no alloc_factor, as debian-7.3.4 has, but doublings: if one of"
    assert any(said in note for note in release(tree).notes)

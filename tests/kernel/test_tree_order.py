"""What a name means in a kernel tree: the definition in effect where it is used."""

# SPDX-License-Identifier: GPL-2.0-only

import pytest

from helpers.trees import HEADER
from pcpmodel.errors import InputError
from pcpmodel.kernel.tree import open_tree
from pcpmodel.study.tree import tree

BULK = "batch << CONFIG_PCP_BATCH_SCALE_MAX"
FREE = "static int nr_pcp_free("
HIGH = "static int nr_pcp_high("
USES = (f"min(pcp->count, {BULK})", "min(pcp->count, batch << CAP)")
SCALED = "	return clamp_t(int, pcp->free_count"
DEFINED = HEADER % {"thp": 2, "more": ""}
AS_BEFORE = "#define CAP CONFIG_PCP_BATCH_SCALE_MAX\n"
CAPPED = "#define CAP 2\n"
UNDEF = "#undef CAP\n"
CONFIGURED = "#ifndef CAP\n%s#endif\n"
SHRINKS = (
    "#define CAP 1\nstatic int shift(void)\n{\n	return CAP + 2;\n}\n\n"
    "bool decay_pcp_high(struct zone *zone, struct per_cpu_pages *pcp)\n{\n"
    "	int least = max3(pcp->count - (READ_ONCE(pcp->batch) << CONFIG_PCP_BATCH_SCALE_MAX),\n"
    "			 pcp->high - (pcp->high >> shift()), pcp->high_min);\n"
    "	int left;\n	bool again;\n\n"
    "	if (pcp->high > pcp->high_min)\n		pcp->high = least;\n"
    "	again = pcp->high > pcp->high_min || pcp->count > pcp->high;\n"
    "	for (left = pcp->count - pcp->high; left > 0; left -= pcp->batch)\n"
    "		free_pcppages_bulk(zone, min(left, pcp->batch), pcp, 0);\n"
    "	return again;\n}\n"
)


def decided(folder):
    """Functions that decide otherwise than v7.2."""
    answer = tree(folder).compare("v7.2", operations=100_000)
    return {d["function"] for d in answer.facts["differences"]}


@pytest.mark.parametrize(
    ("mmzone", "internal", "before", "behind", "capped"),
    [
        (AS_BEFORE, "", UNDEF + CAPPED, "", True),
        (AS_BEFORE, "", "", UNDEF + CAPPED, False),
        ("", "", AS_BEFORE, UNDEF + CAPPED, False),
        ("", "", CAPPED, UNDEF + AS_BEFORE, True),
        (AS_BEFORE, UNDEF + CAPPED, "", "", True),
        (CAPPED, UNDEF + AS_BEFORE, "", "", False),
        (AS_BEFORE, CONFIGURED % CAPPED, CONFIGURED % CAPPED, "", False),
        ("", CONFIGURED % CAPPED, CONFIGURED % AS_BEFORE, "", True),
        (AS_BEFORE, "#ifdef CAP\n" + UNDEF + CAPPED + "#endif\n", "", "", True),
        (AS_BEFORE, "", "#if CAP > 4\n" + UNDEF + CAPPED + "#endif\n", "", True),
        (AS_BEFORE, "", "#if CAP > 5\n" + UNDEF + CAPPED + "#endif\n", "", False),
        ("#define WIDE 2\n", "#define CAP WIDE\n", "#undef WIDE\n#define WIDE 5\n", "", False),
        # Architectures' own: a function beside a macro of its name.
        ("#ifndef cap\n#define cap cap\nstatic inline int cap(void)\n{\n	return 2;\n}\n#endif\n",
         "#ifndef cap\nstatic inline int cap(void)\n{\n	return 5;\n}\n#endif\n#define CAP cap()\n",
         "", "", True),
    ],
)  # fmt: skip
def test_the_definition_in_effect(changed, mmzone, internal, before, behind, capped):
    folder = changed(
        USES, (FREE, before + FREE), (HIGH, behind + HIGH),
        include__linux__mmzone_h=DEFINED + mmzone, mm__internal_h=internal,
    )  # fmt: skip
    assert decided(folder) == ({"nr_pcp_free"} if capped else set())


def test_a_header_is_where_it_is_included(changed):
    """Also in the middle of a file."""
    late = '#include "page_alloc.h"\n'
    for place, capped in ((HIGH, set()), (FREE, {"nr_pcp_free"})):
        folder = changed(USES, ('#include "internal.h"\n', AS_BEFORE), (place, late + place),
                         mm__page_alloc_h=UNDEF + CAPPED)  # fmt: skip
        assert decided(folder) == capped


def test_words_of_the_kernel_s_own(changed):
    """A tree that defines one of them means that one."""
    size = "#undef SZ_256K\n#define SZ_256K 0x20000\nstatic int zone_batchsize("
    assert "zone_batchsize" in decided(changed(("static int zone_batchsize(", size)))


WORDS = """static bool words(unsigned int n)
{
	unsigned long square = (unsigned long)n * n;

	return int_sqrt(square) == n && int_sqrt(square + 2UL * n) == n &&
		int_sqrt(~(n & 0UL)) == 0xffffffff && (!n || int_sqrt(square - 1) == n - 1) &&
		hweight32(n) + hweight32(~n) == 32 && hweight_long(square) == hweight64(square) &&
		hweight16(n) == hweight8(n) + hweight8(n >> 8);
}

"""


def test_words_that_compute(changed):
    """int_sqrt() was left to a library of the system's that no tree is linked with."""
    checked = "	if (!words(pcp->count))\n		return 1;\n"
    folder = changed((FREE, WORDS + FREE), (SCALED, checked + SCALED))
    assert decided(folder) == set()


def test_lists_that_only_decay_empties(changed):
    """A hundred thousand pages in blocks of 512: most of their single pages were of no hold."""
    folder = changed((SCALED, f"	if (batch > 0)\n		return 0;\n{SCALED}"))
    assert tree(folder).as_release().hits is not None


def moved(changed, *more):
    """decay_pcp_high() in mm/vmstat.c, which has a CAP of its own."""
    folder = changed(("bool decay_pcp_high(", "bool decay_once("), *more)
    (folder / "mm/vmstat.c").write_text(f'#include "internal.h"\n{SHRINKS}')
    return folder


def test_macros_of_another_file_are_its_own(changed):
    assert decided(moved(changed, USES, (FREE, AS_BEFORE + FREE))) == set()


def test_functions_of_one_name_in_two_files(changed):
    folder = moved(changed, (FREE, f"static int shift(void)\n{{\n	return 0;\n}}\n\n{FREE}"),
                   ("	return clamp_t(int, pcp->free_count", "	batch <<= shift();\n"
                    "	return clamp_t(int, pcp->free_count"))  # fmt: skip
    with pytest.raises(InputError, match=r"line \d+: shift is another than that of mm/\w+\.c: "):
        open_tree(folder)


def test_a_condition_that_nobody_can_decide(changed):
    ways = f"#if LEVELS > 2\n{CAPPED}#else\n{AS_BEFORE}#endif\n"
    with pytest.raises(InputError, match=r'line \d+: .*"LEVELS" is not defined'):
        open_tree(changed(USES, (FREE, ways + FREE)))


def test_what_only_files_define_that_nobody_gave(changed):
    ways = f"#ifdef ARCH_LEVELS\n{CAPPED}#else\n{AS_BEFORE}#endif\n"
    assert open_tree(changed(USES, (FREE, ways + FREE))).caveats == [
        "Taken as not defined, as no file that is read does: ARCH_LEVELS."
    ]

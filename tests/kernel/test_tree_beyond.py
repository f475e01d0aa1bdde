"""A function of a kernel tree that goes beyond what it was given."""

# SPDX-License-Identifier: GPL-2.0-only

import pytest

from helpers.trees import HEADER
from pcpmodel.errors import InputError
from pcpmodel.kernel.tree import open_tree

FREED = "	pcp->alloc_factor /= 2;\n"
FIELDS = HEADER % {"thp": 2, "more": "\n	u16 seen[4];"}
LARGER = "struct larger {\n	struct per_cpu_pages pcp;\n	struct list_head more[4];\n};\n"


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("page[1].private = order;", "touches what is not mapped"),
        ("((struct larger *)pcp)->more[0].nr++;", "touches what is not mapped"),
        ("*(long *)(pcp + 1) = order;", "touches what is not mapped"),
        ("pcp->lists[order + 20].nr++;", "goes beyond an array"),
        ("pcp->seen[order]++;", "goes beyond an array"),
        ("pcp->seen[migratetype - 1]++;", "goes beyond an array"),
    ],
)
def test_it_is_refused_by_line(changed, does, said):
    folder = changed((FREED, f"{FREED}	{does}\n"), include__linux__mmzone_h=FIELDS + LARGER)
    with pytest.raises(InputError) as error:
        open_tree(folder)
    assert "free_frozen_page_commit() (mm/page_alloc.c: line " in str(error.value)
    assert said in str(error.value)


def test_lists_that_were_counted_otherwise(changed):
    """NR_PCP_LISTS of the functions is another than that of the structure."""
    more = "#undef PAGE_ALLOC_COSTLY_ORDER\n#define PAGE_ALLOC_COSTLY_ORDER 4\n"
    with pytest.raises(InputError, match="has another number of lists than NR_PCP_LISTS"):
        open_tree(changed(include__linux__mmzone_h=FIELDS, mm__internal_h=more))

"""Changes that developers make to a kernel tree: taken for what they decide, or refused by name."""

import pytest

from helpers.trees import TREES, edited, needs_trees
from pcpmodel.errors import InputError
from pcpmodel.kernel.tree import EXCERPT, open_tree
from pcpmodel.kernel.tree_pages import compare
from pcpmodel.study.tree import tree

BASES = pytest.mark.parametrize(
    "base", [EXCERPT, pytest.param(TREES / "7.3.4", marks=needs_trees)], ids=["excerpt", "7.3.4"]
)

# What cannot be taken: changes of the text, of the header, and what is said of them.
REFUSED = {
    "renamed": (
        ((r"static int rmqueue_bulk\(", "static int rmqueue_lots("),), (),
        "mm/page_alloc.c has no function rmqueue_bulk()",
    ),
    "undefined": (
        ((r"pcp->free_count >>= 1;", "pcp->free_count >>= halvings;"),), (),
        "rmqueue_pcplist() uses halvings, which is not in the files of the tree",
    ),
    "another-lock": (
        ((r"guard\(spinlock_irqsave\)\(&zone->lock\);", "mutex_lock(&zone->lists_mutex);"),), (),
        "free_pcppages_bulk() uses ",
    ),
    "another-owner": (
        (), ((r"	struct list_head lists\[NR_PCP_LISTS\];", "	struct pcp_lists *own;"),),
        "struct per_cpu_pages has no field lists",
    ),
    "new-parameter": (
        ((r"(\brmqueue_pcplist\(struct zone \*preferred_zone,[^)]*alloc_flags)\)",
          r"\1, struct folio_batch *fbatch)"),), (),
        "rmqueue_pcplist() has a parameter struct folio_batch * fbatch; known: order, ",
    ),
    "macro": (
        ((r"static void free_pcppages_bulk\(",
          "#define free_pcppages_bulk(...) free_in_bulk(__VA_ARGS__)\n"
          "static void free_in_bulk("),), (),
        "free_pcppages_bulk is a macro; a function can be taken",
    ),
    "unknown-type": (
        (),
        ((r"(	struct list_head lists\[)", r"	struct folio_batch held;\n\1"),),
        "field 'held' has incomplete type",
    ),
    "half-a-statement": (
        ((r"(list = &pcp->lists\[order_to_pindex\(migratetype, order\)\]);", r"\1"),), (),
        "rmqueue_pcplist() expected ';' before ",
    ),
}  # fmt: skip

# What is taken, and decides as before.
TAKEN = {
    "a function as a macro": (
        (r"static int nr_pcp_free\(",
         "#define nr_pcp_free(pcp, batch, high, bulk) pages_to_free(pcp, batch, high, bulk)\n"
         "static int pages_to_free("),
    ),
    "a called function as a macro": (
        (r"static inline int pindex_to_order\(",
         "#define pindex_to_order(pindex) order_of(pindex)\nstatic inline int order_of("),
    ),
    "a function split in two": (
        (r"static int nr_pcp_free\(",
         "static int at_most(struct per_cpu_pages *pcp, int batch);\nstatic int nr_pcp_free("),
        (r"return min\(pcp->count, batch << CONFIG_PCP_BATCH_SCALE_MAX\);",
         "return at_most(pcp, batch);"),
        (r"static int nr_pcp_alloc\(",
         "static int at_most(struct per_cpu_pages *pcp, int batch)\n{\n"
         "	return min(pcp->count, batch << CONFIG_PCP_BATCH_SCALE_MAX);\n}\n\n"
         "static int nr_pcp_alloc("),
    ),
    "checks and counters": (
        (r"pcp->free_count >>= 1;",
         "VM_WARN_ON_ONCE(pcp->count < 0);\n	count_vm_event(PGALLOC);\n"
         "	pcp->free_count >>= 1;"),
    ),
}  # fmt: skip


@BASES
@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_taken_is_one_sentence(tmp_path, what, base):
    text, header, words = REFUSED[what]
    with pytest.raises(InputError) as error:
        open_tree(edited(tmp_path / "tree", text, header, base))
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    if what not in ("renamed",):
        assert ": line " in str(error.value)


@BASES
@pytest.mark.parametrize("what", TAKEN)
def test_what_decides_as_before_is_taken(tmp_path, what, base):
    mine = open_tree(edited(tmp_path / "tree", TAKEN[what], base=base))
    assert compare(mine, "v7.2", 100_000)[1] == []
    assert compare(mine, "v6.12", 50_000)[1]


@needs_trees
def test_another_buddy_system_is_told(tmp_path):
    said = "of the tree these have the text of no known release: "
    assert said not in tree(TREES / "7.3.4").compare("v7.2", operations=50_000).text
    merged = edited(
        tmp_path / "tree",
        ((r"(static inline void __free_one_page\([^{]*\{)", r"\1\n	cond_resched();"),),
        base=TREES / "7.3.4",
    )
    answer = tree(merged).compare("v7.2", operations=50_000)
    assert f"{said}__free_one_page." in answer.text
    assert answer.facts["differences"] == []

"""Core, twin, and a kernel tree by its steps and by its whole functions: one and the same."""

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from helpers.kernels import operations, sizes
from helpers.trees import TREES, needs_trees
from pcpmodel.kernel import pcp, reference
from pcpmodel.kernel.lists import pcp_orders
from pcpmodel.kernel.releases import release
from pcpmodel.kernel.tree import EXCERPT, open_tree
from pcpmodel.kernel.tree_pages import TreePages


def told(pages):
    """What all four keep; v5.10 has neither count_min nor expire in a tree's struct."""
    state = pages.state()
    return {k: state[k] for k in ("count", "high", "lists")}


def held(said):
    """Holds that move pages.

    With high = batch, to which no kernel sizes a list (zone_set_pageset_high_and_batch() of at
    least four batches), nr_pcp_free() of v5.14 to v6.18 is 0 and free_pcppages_bulk() takes the
    lock for nothing: a tree says so, the model leaves it out.
    """
    return [pages for pages in said if pages] if isinstance(said, list) else said


def agree(tree, kernel, examples):
    """The four on the same random operations."""
    orders = pcp_orders(release(kernel).rules.nr_pcp_lists)

    @settings(
        max_examples=examples, deadline=None, derandomize=True, database=None,
        report_multiple_bugs=False, phases=[Phase.generate],
    )  # fmt: skip
    @given(
        batch=st.sampled_from([1, 3, 31, 63]),
        limits=st.tuples(sizes, sizes),
        flags=st.integers(0, 3),
        steps=st.lists(
            st.tuples(st.one_of(operations), st.sampled_from([1, 1, 20, 200])), max_size=25
        ),
    )
    def machine(batch, limits, flags, steps):
        given_ = {"batch": batch, "high_min": limits[0], "high_max": limits[1], "flags": flags}
        four = [
            pcp.PerCpuPages(kernel, **given_),
            reference.PerCpuPages(release(kernel), **given_),
            pcp.PerCpuPages(tree, **given_),
            TreePages(tree, **given_),
        ]
        for (name, *args), times in steps:
            if name in ("alloc", "free") and args[0] not in orders:
                continue
            if name == "flags":
                for pages in four:
                    pages.below_high, pages.reclaim_active = args
                continue
            for _ in range(times):
                core, *others = (held(getattr(pages, name)(*args)) for pages in four)
                assert others == [core] * 3
            core, *others = map(told, four)
            assert others == [core] * 3

    machine()


def test_four_ways_to_do_the_same():
    agree(open_tree(EXCERPT), "v7.3", 40)


def test_they_are_told_apart(changed):
    with pytest.raises(AssertionError):
        agree(open_tree(changed(("pcp->high >> 3", "pcp->high >> 2"))), "v7.3", 300)


@needs_trees
@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "kernel"),
    [("5.10.262", "v5.10"), ("6.1.192", "debian-6.1.192"), ("6.12.107", "debian-6.12.107"),
     ("7.2.13", "debian-7.2.13"), ("7.3.4", "v7.3")],
)  # fmt: skip
def test_real_kernels_four_ways(version, kernel):
    agree(open_tree(TREES / version), kernel, 400)

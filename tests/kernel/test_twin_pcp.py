"""The compiled decisions and their slow twin agree on any sequence of operations."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kernels import kernels, operations, sizes
from pcpmodel.errors import InputError
from pcpmodel.kernel import pcp, reference
from pcpmodel.kernel.lists import pcp_orders

operation = st.one_of(
    *operations,
    st.tuples(st.just("pageset_update"), sizes, sizes, st.sampled_from([1, 7, 31, 63])),
)


@settings(max_examples=300, deadline=None)
@given(
    kernel=kernels(),
    batch=st.sampled_from([1, 3, 31, 63]),
    high_min=sizes,
    high_max=sizes,
    flags=st.integers(0, 3),
    steps=st.lists(st.tuples(operation, st.sampled_from([1, 1, 20, 200])), max_size=25),
)
def test_core_and_twin_agree(kernel, batch, high_min, high_max, flags, steps):
    pair = [
        make(kernel, batch=batch, high_min=high_min, high_max=high_max, flags=flags)
        for make in (pcp.PerCpuPages, reference.PerCpuPages)
    ]
    orders = pcp_orders(kernel.rules.nr_pcp_lists)
    for (name, *args), times in steps:
        if name in ("alloc", "free") and args[0] not in orders:
            with pytest.raises(InputError, match="never enters a PCP list"):
                getattr(pair[0], name)(*args)
            continue
        if name == "flags":
            for pages in pair:
                pages.below_high, pages.reclaim_active = args
            continue
        for _ in range(times):
            core, twin = (getattr(pages, name)(*args) for pages in pair)
            assert core == twin
        assert pair[0].state() == pair[1].state()
        assert pair[0].count >= 0

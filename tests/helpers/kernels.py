"""Kernels for property tests."""

# SPDX-License-Identifier: GPL-2.0-only

from hypothesis import strategies as st

import pcpmodel as pm

NAMES = [r.name for r in pm.releases()]


PATCHES = sorted({p.key for p in pm.patches()} | {"free-high-threshold=126"})

#: Of a pageset: its limits [pages], and the blocks that it takes.
sizes = st.sampled_from([0, 1, 3, 62, 63, 64, 126, 250, 500, 1170, 8192])
order = st.sampled_from([0, 0, 0, 1, 2, 3, 9])
migratetype = st.integers(0, 2)
#: What the lists of one CPU are asked to do.
operations = [
    st.tuples(st.just("alloc"), order, migratetype),
    st.tuples(st.just("free"), order, migratetype),
    st.tuples(st.just("decay")),
    st.tuples(st.just("drain_zone_pages")),
    st.tuples(st.just("drain_pages_zone")),
    st.tuples(st.just("flags"), st.booleans(), st.booleans()),
]


@st.composite
def kernels(draw):
    """A release with some patches put on or taken off."""
    state = pm.release(draw(st.sampled_from(NAMES)))
    for patch in draw(st.lists(st.sampled_from(PATCHES), max_size=3, unique=True)):
        state = state.without(patch) if patch in state.patches else state.plus(patch)
    return state.with_batch_scale_max(draw(st.integers(0, 6)))

"""What the tests of kernel trees share."""

# SPDX-License-Identifier: GPL-2.0-only

import itertools
import os

import pytest

from helpers.trees import changed_excerpt
from pcpmodel.kernel import memory, reference
from pcpmodel.kernel.zone import Zone


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory):
    """What tests compile, apart from the user's; workers share it."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        cache = tmp_path_factory.getbasetemp().parent / "cache"
    else:
        cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "XDG_CACHE_HOME", str(cache))
        yield


@pytest.fixture(scope="session")
def changed(tmp_path_factory):
    """The excerpt with parts of its text replaced: `changed_excerpt` into a new folder."""
    base, number = tmp_path_factory.mktemp("trees"), itertools.count()
    return lambda *pairs, **files: changed_excerpt(base / f"tree{next(number)}", *pairs, **files)


@pytest.fixture(params=[memory.Memory, reference.Memory], ids=["core", "twin"])
def make(request):
    """One zone whose free lists, page blocks and PCP lists are given."""

    def memory_with(name, free, *, pages=1024, blocks=None, batch=3, high=500, pcp=(), **more):
        zone = Zone(pages, batch=batch, high_min=high, high_max=max(high, 2000))
        mem = request.param(name, [zone], free=False, **more)
        state = {"free": free}
        if blocks is not None:
            state["blocks"] = blocks
        if pcp:
            state["pcp"] = pcp
        mem.load(0, state)
        mem.record_events()
        return mem

    return memory_with

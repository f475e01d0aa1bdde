"""Free lists that follow a trace: cut anywhere, begun again anywhere, and compared as a whole."""

# SPDX-License-Identifier: GPL-2.0-only

import random
from itertools import pairwise

import pytest

import pcpmodel as pm
from helpers.paths import TRACES
from pcpmodel.trace import free_lists


class BegunError(Exception):
    """The free lists are at the end of the first dump."""


@pytest.fixture
def begun(monkeypatch):
    """(name) -> the free lists of a recording, and what they were at the end of its first dump."""

    def begin(self):
        raise BegunError(self)

    def of(name):
        monkeypatch.setattr(free_lists._Followed, "blocks", begin)
        with pytest.raises(BegunError) as caught:
            pm.replay(TRACES / name)
        mine = caught.value.args[0]
        return mine, mine.lists.save()

    return of


def lists_of(mine):
    every = free_lists.lists_of(mine.dump.zones, {})
    return {(n, what): mine.lists.blocks(n, *what) for n, what in every}


@pytest.mark.parametrize("name", ["6.1-pressure-4cpu", "6.12-pressure-4cpu"])
def test_where_a_trace_is_cut_changes_nothing(name, begun):
    """Also not when a block that __free_pages_ok() frees comes to them, past the per-CPU lists."""
    mine, start = begun(name)
    lists, first, stop = mine.lists, mine.first, mine.begin

    def followed(cuts):
        lists.restore(start)
        for a, b in pairwise([first, *cuts, stop]):
            assert lists.run(a, b, mine.acts) == b - a
        counts = lists.taken, lists.foreseen, lists.freed, lists.isolated
        return counts, lists.unforeseen, lists.explained, lists.around, lists_of(mine)

    whole = followed([])
    assert lists.explained
    for pieces in (24, 3000):
        cuts = sorted(random.Random(pieces).sample(range(first + 1, stop), pieces - 1))
        assert followed(cuts) == whole
    for (zone, (order, _)), blocks in lists_of(mine).items():
        for pfn in blocks:
            assert (pfn, order) in lists.free_in(zone, pfn)
            assert all(p >> 9 == pfn >> 9 for p, _ in lists.free_in(zone, pfn))

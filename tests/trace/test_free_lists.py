"""Free lists that follow a trace: cut anywhere, begun again anywhere, and compared as a whole."""

# SPDX-License-Identifier: GPL-2.0-only

import json
import random
from itertools import pairwise

import numpy as np
import pytest
import replay_all

import pcpmodel as pm
from helpers.paths import TRACES
from pcpmodel.trace import free_lists, unseen
from pcpmodel.trace.buddy_lists import ACT, KINDS

REPLAYED = json.loads(replay_all.PINNED.read_text("utf-8"))


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


def test_lists_that_are_the_same_have_the_same_sum_and_others_another(begun):
    mine, start = begun("6.12-pressure-4cpu")
    lists, first = mine.lists, mine.first
    half = first + (mine.begin - first) // 2

    def summed(acts, since=None):
        """At half the way, from the start or from a place before it."""
        lists.restore(start)
        if since is not None:
            lists.run(first, since, acts)
            lists.sum_up(since)
            there = lists.save()
            lists.run(since, half, acts)
            lists.restore(there)
        lists.run(first if since is None else since, half, acts)
        return lists.sum_up(half)[0], lists_of(mine), lists.unforeseen

    same = summed(mine.acts)
    for since in (first + 1, first + 5000, half - 1):
        assert summed(mine.acts, since) == same
    # One page less; one list that begins with its second block; a page that was not there.
    order, blocks = next((o, b) for (_, (o, mt)), b in same[1].items() if mt == 1 and len(b) > 2)
    turns = next(
        b for (_, (o, mt)), b in same[1].items() if (o >= 3, mt) == (True, 1) and len(b) > 1
    )
    held = next(
        p for p in range(blocks[0], blocks[0] + 10**5)
        if all(not b <= p < b + (1 << o) for (_, (o, _)), bs in same[1].items() for b in bs)
    )  # fmt: skip
    for kind, pfn, other in (
        ("leaves", blocks[1], True), ("isolated", blocks[1], True), ("turned", turns[1], True),
        ("turned", turns[0], False), ("leaves", held, False), ("joins", blocks[1], False),
    ):  # fmt: skip
        last = np.array([(half - 1, pfn, 0, 0, KINDS[kind])], ACT)
        now = summed(np.concatenate([mine.acts[mine.acts["row"] < half], last]))
        assert (now[0] != same[0], now[1] != same[1]) == (other, other), (kind, order)
    for (zone, (order, _)), blocks in lists_of(mine).items():
        for pfn in blocks:
            assert (pfn, order) in lists.free_in(zone, pfn)
            assert all(p >> 9 == pfn >> 9 for p, _ in lists.free_in(zone, pfn))
    with pytest.raises(ValueError, match="out of range"):
        lists.sum_up(len(mine.rows) + 1)


@pytest.mark.parametrize("name", ["6.12-pressure-4cpu", "6.19-pressure-4cpu"])
def test_a_try_that_is_given_up_would_have_come_to_nothing(name, monkeypatch):
    """All that a search finds is found as well by one that follows every try to its end."""
    found, costs = [], []
    for new in (unseen.Try._is_new, lambda self, row: True):
        searches = []

        class Counted(unseen.Search):
            def __init__(self, *arguments, made=searches):
                super().__init__(*arguments)
                made.append(self)

        monkeypatch.setattr(unseen.Try, "_is_new", new)
        monkeypatch.setattr(free_lists, "Search", Counted)
        found.append(pm.replay(TRACES / name))
        costs.append(unseen._EFFORT - searches[0].effort)
        assert not searches[0].cut
    assert replay_all.pinned(found[0]) == REPLAYED[name]
    assert found[0].explained == found[1].explained
    assert found[0].as_dict() == found[1].as_dict()
    assert 0 < costs[0] < costs[1]

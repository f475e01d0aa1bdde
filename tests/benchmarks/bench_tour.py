"""The tour of 00-start-here: from a control that moves to the next picture, under 200 ms.

``redraw`` meets settings that were not seen before, so every number is simulated anew;
``drawing`` is what the picture alone takes of it.
"""

# SPDX-License-Identifier: GPL-2.0-only

import time

import pytest

import pcpmodel as pm
from pcpmodel.reports import tour

pytestmark = pytest.mark.benchmark(timer=time.process_time, group="tour")


@pytest.fixture(scope="module")
def controls():
    return pm.Tour().controls()


@pytest.mark.parametrize("workload", tour.WORKLOADS)
def test_redraw(benchmark, controls, workload):
    release, kind, batch, *_ = controls.children[0].children
    kind.value = workload
    batches = (31, 126, 63)

    def forget():
        tour._run.cache_clear()
        tour._life.cache_clear()
        return (batches[(batches.index(batch.value) + 1) % len(batches)],), {}

    def move(value):
        batch.value = value

    batch.value = 63
    assert release.value == "v6.7"
    benchmark.pedantic(move, setup=forget, rounds=9, warmup_rounds=3)


def test_drawing(benchmark):
    shown = pm.Tour()
    benchmark.pedantic(shown.png, rounds=9, warmup_rounds=1)

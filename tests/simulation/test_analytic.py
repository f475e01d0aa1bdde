"""The closed forms against results that can be written down."""

# SPDX-License-Identifier: GPL-2.0-only

import math

import pytest

from pcpmodel.errors import InputError
from pcpmodel.simulation.analytic import chain, mva


def machine_repairman(cpus: int, think: float, hold: float) -> tuple[float, float]:
    """M/M/1//N by summing its product form: (holds per ns, mean number at the lock)."""
    weight = [
        math.factorial(cpus) / math.factorial(cpus - j) * (hold / think) ** j
        for j in range(cpus + 1)
    ]
    total = sum(weight)
    return (1 - weight[0] / total) / hold, sum(j * w for j, w in enumerate(weight)) / total


@pytest.mark.parametrize("cpus", [1, 2, 3, 10, 56])
@pytest.mark.parametrize("load", [0.01, 0.3, 1.0, 5.0])
def test_mva_and_chain_equal_the_machine_repairman_model(cpus, load):
    think = 1000.0 * cpus / load
    rate, at_lock = machine_repairman(cpus, think, 1000.0)
    for closed in (mva(cpus, think, 1000.0), chain(cpus, think, 1000.0)):
        assert closed.holds_per_s == pytest.approx(rate * 1e9, rel=1e-9)
        assert closed.wait_ns == pytest.approx(at_lock / rate - 1000.0, rel=1e-6, abs=1e-6)
        assert closed.utilisation == pytest.approx(rate * 1000.0, rel=1e-9)


def test_one_cpu_never_waits():
    assert mva(1, 500.0, 100.0).wait_ns == 0.0
    assert chain(1, 500.0, 100.0, 50.0).wait_share == pytest.approx(0.0, abs=1e-12)


def test_a_full_lock_is_the_bound():
    """With no work between holds every CPU but one waits."""
    closed = mva(8, 0.0, 100.0)
    assert closed.holds_per_s == pytest.approx(1e7)
    assert closed.wait_share == pytest.approx(7 / 8)


def test_throughput_stays_under_both_asymptotes():
    for cpus in range(1, 300, 13):
        closed = mva(cpus, 50_000.0, 1000.0)
        assert closed.holds_per_s <= min(cpus / 51_000.0, 1 / 1000.0) * 1e9 * (1 + 1e-12)


def test_a_lock_with_a_handover_only_levels_off():
    """No collapse, as of a ticket lock: a line per waiter."""
    flat = [chain(n, 20_000.0, 1000.0, 100.0).holds_per_s for n in (4, 16, 64, 224)]
    assert flat[0] < flat[1] < flat[2]
    assert flat[3] == pytest.approx(flat[2])


def test_cpu_time_is_conserved():
    for closed in (mva(40, 9000.0, 700.0), chain(40, 9000.0, 700.0, 200.0)):
        cycle = closed.cpus / closed.holds_per_s * 1e9
        assert cycle == pytest.approx(9000.0 + 700.0 + closed.wait_ns)
        assert closed.wait_share == pytest.approx(closed.wait_ns / cycle)


@pytest.mark.parametrize(
    "bad",
    [
        (0, 1.0, 1.0),
        (True, 1.0, 1.0),
        (2.5, 1.0, 1.0),
        (2, -1.0, 1.0),
        (2, float("nan"), 1.0),
        (2, 1.0, 0.0),
        (2, 1.0, float("inf")),
    ],
)
def test_impossible_arguments_are_refused(bad):
    for solve in (mva, chain):
        with pytest.raises(InputError):
            solve(*bad)
    with pytest.raises(InputError):
        chain(2, 1.0, 1.0, handover_ns=-1.0)

"""What a simulation begins with: named arrays, each checked before C reads it."""

# SPDX-License-Identifier: GPL-2.0-only

from dataclasses import fields, replace

import numpy as np
import pytest

import pcpmodel as pm
from helpers.simulation import pairs, spec
from pcpmodel.errors import InputError
from pcpmodel.simulation.engine import Engine
from pcpmodel.simulation.setup import Setup, setup
from pcpmodel.simulation.spec import make_spec
from pcpmodel.simulation.state import Failure, State

CHANGES = [pm.change(0.001, batch=7), pm.change(0.002, offline=1)]


def begins(**options):
    return setup(spec(pairs(2), changes=CHANGES, trylock_failure=0.01, **options))


ARRAYS = [
    f.name
    for f in fields(Setup)
    if isinstance(getattr(begins(), f.name), np.ndarray)  # what C reads by column
]


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_of_another_type_or_shape_is_refused_by_name(name):
    given = begins()
    array = getattr(given, name)
    other = np.zeros(array.shape)
    for wrong in (other, array[None], array.tolist(), None):
        with pytest.raises(InputError, match=f"^{name} is not an array of"):
            State(replace(given, **{name: wrong}))
    if name in ("channels", "tables"):
        return  # as many as there are
    with pytest.raises(InputError, match="has the shape"):  # it or those of the same length
        State(replace(given, **{name: array[:-1]}))
    gaps = np.repeat(array, 2, axis=0)[::2]
    with pytest.raises(InputError, match=f"{name} has gaps"):
        State(replace(given, **{name: gaps}))


@pytest.mark.parametrize(
    ("name", "column", "value", "said"),
    [
        ("zones", "free", -1, "free of a zone"),
        ("zones", "node", 1024, "node of a zone"),
        ("sizes", "batch", 0, "batch"),
        ("sizes", "flags", 4, "PCP flags"),
        ("tasks", "home", 2, "own zone of a task"),
        ("tasks", "peer", -1, "peer's zone of a task"),
        ("tasks", "program", 2, "program of a task"),
        ("tasks", "start_ps", -1, "start of a task"),
        ("channels", "room", 0, "room of a channel"),
        ("channels", "consumer", 4, "consumer of a channel"),
        ("changes", "kind", 4, "kind of a change"),
        ("changes", "cpu", 4, "CPU of a change"),
        ("changed_sizes", "batch", 0, "batch after a change"),
        ("zonelists", ..., 2, "zonelists"),
        ("task_channels", ..., 2, "task_channels"),
        ("costs", ..., -1, "costs"),
        ("fails", ..., -1, "fails"),
    ],
)
def test_a_number_that_leads_out_of_its_array_is_refused_by_name(name, column, value, said):
    given = begins()
    array = getattr(given, name).copy()
    array[column][-1] = value
    with pytest.raises(InputError, match=f"^{said}: "):
        State(replace(given, **{name: array}))


@pytest.mark.parametrize("name", ["lru_batches", "samples", "end_ps", "tick_ps"])
def test_a_setting_outside_its_range_is_refused_by_name(name):
    with pytest.raises(InputError, match=f"^{name}: "):
        State(replace(begins(), **{name: (15, -1) if name == "lru_batches" else -1}))


def test_c_reads_every_column_under_its_name():
    given = begins(jitter=0.2)
    state = State(given)
    assert state.zone_free() == given.zones["free"].tolist()
    assert state.times_ps() == given.tasks["start_ps"].tolist()
    assert len(set(state.times_ps())) > 1
    for lists in state.pcps():
        for pcp, size in zip(lists, given.sizes, strict=True):
            assert pcp["flags"] == size["flags"]
            assert (pcp["batch"], pcp["high_min"], pcp["high_max"]) == tuple(size)[:3]
    Engine(state).run()
    assert state.failed is Failure.NONE
    assert {pcp["batch"] for pcp in state.pcps()[0]} == set(given.changed_sizes["batch"][-1])


def test_failures_have_names():
    assert [f.name for f in Failure] == [
        "NONE",
        "OUT_OF_MEMORY",
        "LISTS_DISAGREE",
        "POLICY_FAILED",
        "NO_TIME",
        "TREE_FAILED",
    ]
    assert not Failure.NONE


@pytest.mark.parametrize("name", ["host", "releas", "-"])
def test_an_argument_that_simulate_does_not_have_is_named(name):
    """The host is told by its fields: with ``host=`` there would be two."""
    with pytest.raises(InputError, match=f"^unknown argument '{name}'") as refused:
        pm.simulate(release="v6.18", machine="ice-lake", workload=pairs(1), cpus=2, **{name: None})
    known = str(refused.value).partition("Known: ")[2].split(", ")
    assert {"batch_scale_max", "cpus", "page_size_kib"} <= {*known}
    assert "host" not in known


@pytest.mark.parametrize("cpus", [224, 1024])
def test_time_series_that_take_gigabytes_are_refused(cpus):
    """By what they need and what is allowed, before there are any."""
    given = {"release": "v6.6", "machine": "ice-lake", "cpus": cpus, "nodes": 2}
    given |= {"workload": pm.workload.page_fault1(cpus, pages=100), "memory_gib": 512}
    most = (2 << 30) // (192 * cpus)
    assert make_spec(**given, samples=most).samples == most
    with pytest.raises(InputError, match=rf"samples=100000 .* GiB .* allowed: .* {most} samples"):
        make_spec(**given, samples=100_000)

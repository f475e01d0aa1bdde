"""Small simulations of every kind, in both engines."""

# SPDX-License-Identifier: GPL-2.0-only

import numpy as np

from pcpmodel import machine
from pcpmodel.simulation.engine import Engine
from pcpmodel.simulation.per_page import PerPage
from pcpmodel.simulation.setup import Lines, setup
from pcpmodel.simulation.spec import make_spec
from pcpmodel.simulation.state import LISTS_ROOM, Failure, State
from pcpmodel.workload import (
    ALL,
    Channel,
    Program,
    Task,
    Workload,
    exit_storm,
    file_churn,
    idle_after_burst,
    page_fault1,
    recorded,
)

#: All that its sheet has takes time.
WHOLE = machine("sapphire-rapids")
#: A machine of which a test can say what comes next: holds and a hand-over alone.
MACHINE = WHOLE.with_costs(zone_lines=0.0, lru_lines=0.0, handover=50.0, smt_share=0.0)
#: What blocks take for their lines, as if a pilot had found it: each list another time.
LINES = Lines(np.arange(2.0 * LISTS_ROOM).reshape(2, LISTS_ROOM) % 11, 3.0)


def prepare(spec):
    """The initial state, without a pilot."""
    return State(setup(spec, None if spec.warm else LINES))


def outcome(state):
    """Everything that a run leaves behind."""
    return {
        "counters": state.counters(),
        "histograms": state.histograms(),
        "over": state.over(),
        "by_kind": state.by_kind(),
        "phases": state.phases(),
        "series": state.series(),
        "pcps": state.pcps(),
        "held": state.held(),
        "zone_free": state.zone_free(),
        "order": state.order_digests,
        "events": state.events,
        "times": state.times_ps(),
        "pages": state.page_digests(),
        "lists": state.page_lists(),
    }


def both(spec):
    states = []
    for engine in (Engine, PerPage):
        state = prepare(spec)
        assert engine(state).run()
        assert state.failed is Failure.NONE
        states.append(outcome(state))
    return states


def assert_same(spec):
    event, page = both(spec)
    for what in event:
        assert event[what] == page[what], what
    return event


def faults(processes=6, pages=700, **more):
    return page_fault1(processes, pages=pages, fault_ns=300.0, unmap_ns=60.0, **more)


def life_cycle(processes):
    """Grow in bursts, shrink now and then, exit: all at once, then an order-1 PGD."""
    p = Program()
    with p.forever():
        p.alloc(1, order=1, migratetype="unmovable", ns=200)
        p.alloc(4, migratetype="unmovable", ns=150)
        with p.repeat(5):
            size = p.draw([3, 40, 900, 2500])
            p.alloc(size, ns=400)
            p.work(20_000)
            p.free(300, ns=90)
        p.free(ALL, ns=90)
        p.free(ALL, migratetype="unmovable", ns=90)
        p.free(1, order=1, migratetype="unmovable", ns=90)
        p.score()
        p.idle(30_000)
    return Workload("life", (Task(p),) * processes, "processes", processes * 13_000)


def pairs(n, room=4, cross=False):
    """Blocks of order 3..0 allocated here, freed there."""
    tx, rx = Program(), Program()
    blocks = {"unmovable_3": 1, "unmovable_2": 1, "unmovable_1": 1, "unmovable_0": 1}
    with tx.forever():
        for order in (3, 2, 1, 0):
            tx.alloc(1, order=order, migratetype="unmovable", ns=900)
        tx.send(0, **blocks)
    with rx.forever():
        rx.recv(0, **blocks)
        for order in (3, 2, 1, 0):
            rx.free(1, order=order, migratetype="unmovable", ns=700, of="peer")
        rx.score()
    tasks, channels = [], []
    for i in range(n):
        channels.append(Channel(2 * i, 2 * i + 1, room=room, latency_ns=2000))
        node = (i % 2, 1 - i % 2) if cross else (i % 2, i % 2)
        tasks += [
            Task(tx, node[0], channels=(i,), peer=2 * i + 1),
            Task(rx, node[1], channels=(i,), peer=2 * i),
        ]
    return Workload("pairs", tuple(tasks), "messages", n * 16 * (room + 2), tuple(channels))


WORKLOADS = {
    "page_fault1": faults(),
    "page_fault1-lru": faults(lru=True),
    "long mapping": faults(4, 20_000),
    "life cycle": life_cycle(6),
    "pairs": pairs(4),
    "pairs across nodes": pairs(4, cross=True),
    "one-message channel": pairs(3, room=1),
    "exit of a big process": exit_storm(4, pages=2400, fault_ns=200.0),
    "large folios": file_churn(6, order=2),
    "rest after bursts": idle_after_burst(6, pages=1500, idle_s=0.005, fault_ns=300.0),
    "recorded processes": recorded("6.18-exitstorm", 6, page_us=0.4),
}


def spec(workload, **options):
    options = {
        "release": "v6.7",
        "machine": MACHINE,
        "cpus": 8,
        "nodes": 2,
        "memory_gib": 16,
        "seconds": 0.02,
        "warmup_s": 0.0,
        "samples": 7,
        "stat_interval_s": 0.004,
        "jitter": 0.2,
    } | options
    return make_spec(workload=workload, **options)

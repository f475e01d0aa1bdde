"""Changes of the machine during a run, and PCP locks that somebody else has."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pcpmodel as pm
from helpers.simulation import MACHINE, WORKLOADS, assert_same, faults, outcome, prepare, spec
from pcpmodel.kernel.releases import releases
from pcpmodel.simulation.engine import Engine
from pcpmodel.simulation.spec import SPINLOCKS, make_spec
from pcpmodel.workload import Program, Task, Workload


def after(run):
    state = prepare(run)
    assert Engine(state).run()
    assert not state.failed
    return outcome(state)


CHANGES = st.lists(
    st.one_of(
        st.builds(lambda v: {"high_fraction": v}, st.sampled_from([0, 8, 20])),
        st.builds(lambda v: {"batch": v}, st.sampled_from([1, 7, 63])),
        st.builds(lambda v: {"high_pages": v}, st.sampled_from([70, 500, 4000])),
        st.builds(lambda v: {"drain_all": v}, st.integers(0, 1)),
    ),
    max_size=5,
)


@settings(max_examples=80, deadline=None)
@given(
    name=st.sampled_from(sorted(WORKLOADS)),
    release=st.sampled_from([r.name for r in releases()]),
    seed=st.integers(0, 2**31),
    identity=st.booleans(),
    nohz=st.booleans(),
    jitter=st.sampled_from([0.0, 0.2]),
    tick=st.sampled_from([0.0, 0.0007]),
    trylock=st.sampled_from([0.0, 0.001, 0.3]),
    changes=CHANGES,
    times=st.lists(st.integers(1, 7999), min_size=5, max_size=5),
    dead=st.sampled_from([None, 2, 3]),
    spinlock=st.sampled_from(SPINLOCKS),
)
def test_engines_agree_whatever_happens_meanwhile(
    name, release, seed, identity, nohz, jitter, tick, trylock, changes, times, dead, spinlock
):
    happens = [pm.change(us * 1e-6, **what) for us, what in zip(times, changes, strict=False)]
    if dead is not None:
        happens += [pm.change(0.002, offline=dead), pm.change(0.006, online=dead)]
    assert_same(
        spec(
            WORKLOADS[name],
            release=release,
            seed=seed,
            identity=identity,
            nohz_idle=nohz,
            spinlock=spinlock,
            jitter=jitter,
            stat_interval_s=tick,
            trylock_failure=trylock,
            changes=happens,
            seconds=0.008,
        )
    )


@pytest.mark.parametrize("release", ["v5.17", "v7.2"])
def test_engines_agree_when_a_refill_ends_at_a_full_pagevec_while_lists_are_drained(release):
    """The event engine has its CPU at the LRU lock then, while it still has its PCP lock."""
    for seed in range(60):
        assert_same(
            spec(
                WORKLOADS["large folios"],
                release=release,
                seed=seed,
                identity=True,
                stat_interval_s=0.0,
                changes=[pm.change(0.001, drain_all=0)] * 2,
                seconds=0.003,
            )
        )


def test_sizes_follow_the_sysctl_and_come_back():
    run = spec(faults(8, 6000), changes=[pm.change(0.01, high_fraction=100)])
    for cpu in after(run)["pcps"]:
        assert {p["high_min"] for p in cpu} == {p["high_max"] for p in cpu}
    back = spec(
        faults(8, 6000),
        changes=[pm.change(0.01, high_fraction=8), pm.change(0.01, high_fraction=0)],
    )
    plain = spec(faults(8, 6000))
    limits = [(p["high_min"], p["high_max"]) for cpu in after(back)["pcps"] for p in cpu]
    assert limits == [(p["high_min"], p["high_max"]) for cpu in after(plain)["pcps"] for p in cpu]


@pytest.mark.parametrize("release", ["v6.6", "v6.7", "v7.2"])
def test_a_cpu_that_goes_offline_leaves_its_lists_empty_and_its_share_to_the_others(release):
    run = spec(faults(8, 6000), release=release, changes=[pm.change(0.01, offline=3)])
    dead, plain = after(run), after(spec(faults(8, 6000), release=release))
    # Tasks go to the two nodes in turn: CPU 3, the last of node 0, has task 6.
    assert [p["count"] for p in dead["pcps"][6]] == [0, 0]
    assert dead["counters"][6]["idle_ps"] > 9e9
    assert dead["counters"][6]["drains"] > 0
    limit = "high_max" if release != "v6.6" else "high_min"
    assert dead["pcps"][0][0][limit] > plain["pcps"][0][0][limit]
    assert dead["pcps"][0][1][limit] == plain["pcps"][0][1][limit]


def test_a_cpu_that_comes_back_goes_on_where_it_was():
    run = spec(faults(8, 6000), changes=[pm.change(0.005, offline=3), pm.change(0.01, online=3)])
    back = after(run)["counters"][6]
    assert back["idle_ps"] == pytest.approx(5e9, rel=0.05)
    assert back["end_ps"] == pytest.approx(2e10, rel=1e-3)
    assert back["alloc_pages"] > 12_000


@pytest.mark.parametrize("identity", [False, True])
def test_draining_all_empties_every_list_and_sends_their_owners_to_the_zone(identity):
    at = 0.0101
    run = spec(
        faults(8, 20_000),
        high_pages=20_000,
        identity=identity,
        warm=True,
        seconds=0.014,
        samples=1400,
        changes=[pm.change(at, drain_all=0)],
    )
    drained = assert_same(run)
    plain = after(
        spec(faults(8, 20_000), high_pages=20_000, warm=True, seconds=0.014, samples=1400)
    )
    # [cpu][pages in PCPs, pages held][sample]
    series = [np.frombuffer(r["series"], np.int64).reshape(8, 2, -1) for r in (drained, plain)]
    before, same = [s[:, 0, int(at * 1e5) - 1].sum() for s in series]
    assert before == same
    pages = drained["counters"][0]["drain_pages"] - plain["counters"][0]["drain_pages"]
    assert pages > 0.7 * before  # the rest is used or freed by the owners meanwhile
    directs = [c["direct_allocs"] + c["direct_frees"] for c in drained["counters"]]
    assert directs[0] == 0  # its own lists it drains between two operations
    assert sum(directs) > 0


def test_a_trylock_that_fails_goes_to_the_zone_once():
    counts = [
        after(spec(faults(4, 3000), trylock_failure=chance))["counters"] for chance in (0.0, 0.01)
    ]
    assert not any(c["direct_allocs"] or c["direct_frees"] for c in counts[0])
    for c in counts[1]:
        operations = c["alloc_blocks"] + c["free_pages"]
        assert c["direct_allocs"] + c["direct_frees"] == pytest.approx(0.01 * operations, rel=0.3)


@pytest.mark.parametrize("identity", [False, True])
def test_blocks_that_no_list_holds_leave_the_failures_to_those_that_try_the_lock(identity):
    """Every second operation tries no lock; it took the failure that the next one was to have."""
    p = Program()
    with p.forever():
        for move in (p.alloc, p.free):
            move(1, ns=500)
            move(1, order=5, ns=500)
        p.score()
    work = Workload("every second", (Task(p),), "rounds", 100)
    [c] = assert_same(spec(work, trylock_failure=0.1, identity=identity, warm=True))["counters"]
    tries, failures = 2 * c["score"], c["direct_allocs"] + c["direct_frees"] - 2 * c["score"]
    assert failures == pytest.approx(0.1 * tries, abs=4 * (0.09 * tries) ** 0.5)


def test_a_drain_in_chunks_leaves_the_rest_to_whoever_waits_for_the_list():
    """Between two chunks the PCP lock is free; who spins for it has it before a trylock can."""
    p, idle = Program(), Program()
    p.alloc(3000, ns=100)
    p.free(3000, ns=100)
    idle.idle(1e6)
    drained = {}
    for release in ("v6.18", "v6.19"):
        run = spec(
            Workload("free", (Task(idle, 0), Task(p, 0)), "nothing", 3000),
            release=release,
            high_pages=2000,
            machine=MACHINE.slower(20.0),
            jitter=0.0,
            hold="mean",
            changes=[pm.change(0.0038, drain_all=0)],
        )
        drained[release] = [c["drain_pages"] for c in assert_same(run)["counters"]]
    # One hold for the whole commit: there is next to nothing left for the other CPU.
    assert drained["v6.18"] == [63, 3047]
    assert drained["v6.19"][0] > 1000
    assert drained["v6.19"][1] < 2000


def test_a_change_at_the_start_is_a_run_with_these_sizes():
    """Nothing has been drained or refilled by 1 ns but the first lists."""
    changed = spec(faults(4, 3000), release="v6.6", changes=[pm.change(1e-9, high_pages=900)])
    plain = spec(faults(4, 3000), release="v6.6", high_pages=900)
    changed, plain = after(changed), after(plain)
    assert changed["counters"] == plain["counters"]
    assert changed["pcps"] == plain["pcps"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([{"high_fraction": 8}], "has no at_s"),
        ([{"at_s": 0.01, "high_frac": 8}], "did you mean 'high_fraction'"),
        ([{"at_s": 0.01}], "changes nothing"),
        ([{"at_s": -1, "batch": 7}], "at_s=-1 is not a number of seconds"),
        ([{"at_s": 0.5, "batch": 7}], "the run ends at 0.02 s"),
        ([{"at_s": 0.01, "high_fraction": 3}], "at 0.01 s: .*3"),
        ([{"at_s": 0.01, "high_pages": 5}], "at 0.01 s: high of 5 pages is below batch"),
        ([{"at_s": 0.01, "batch": 7, "offline": 1}], "do not happen at once"),
        ([{"at_s": 0.01, "offline": 8}], r"CPUs are 0\.\.7"),
        ([{"at_s": 0.01, "online": 1}], "this CPU is online then"),
        ([{"at_s": 0.001, "offline": 1}, {"at_s": 0.01, "drain_all": 1}], "is offline then"),
        ([{"at_s": 0.001, "offline": i} for i in range(8)], "the last CPU online"),
        ([{"at_s": 0.01, "drain_all": 7}], "no task runs on this CPU"),
        ({"at_s": 0.01, "batch": 7}, "is not a list of changes"),
        ([8], "is not what pcpmodel.change"),
    ],
)
def test_impossible_changes_are_refused(changes, message):
    with pytest.raises(pm.InputError, match=message):
        spec(faults(4), changes=changes)


def test_impossible_trylocks_are_refused():
    with pytest.raises(pm.InputError, match=r"trylock_failure=0\.7"):
        make_spec(release="v6.7", machine=MACHINE, workload=faults(4), cpus=4, trylock_failure=0.7)


def test_a_sweep_has_the_same_changes_in_every_run_and_writes_them_down():
    run = spec(faults(4, 3000), changes=[pm.change(0.01, high_fraction=8)], samples=0)
    grid = pm.sweep(run, seed=[1, 2], progress=False)
    assert grid.refills[0] == pm.simulation.run.execute(run).refills
    again = pm.sweep(run, changes=[{"at_s": 0.01, "high_fraction": 8}], seed=[1, 2], progress=False)
    assert again.attrs["sweep"] == grid.attrs["sweep"]
    other = pm.sweep(run, changes=[], seed=[1, 2], progress=False)
    assert other.attrs["sweep"] != grid.attrs["sweep"]
    assert '"changes": [{"at_s": 0.01, "high_fraction": 8}]' in grid.attrs["spec"]

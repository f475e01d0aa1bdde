"""Policies of one's own: the public C interface, its examples, its errors."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import pcpmodel as pm
from helpers.memory import busy
from helpers.paths import ROOT
from pcpmodel import cython_pcp
from pcpmodel.kernel.memory import Memory
from pcpmodel.kernel.pcp import PerCpuPages
from pcpmodel.kernel.policies import with_policy
from pcpmodel.kernel.zone import Zone
from pcpmodel.simulation.engine import Engine
from pcpmodel.simulation.per_page import PerPage
from pcpmodel.simulation.pilot import prepare
from pcpmodel.simulation.spec import make_spec, varied
from pcpmodel.study.sweep.grid import make_grid


def test_exported_functions_and_structs_are_those_released():
    # Compiled users break when one of these changes.  Add, never edit; a new
    # struct gets a new name.
    signatures = {name: repr(c).split('"')[1] for name, c in cython_pcp.__pyx_capi__.items()}
    assert signatures == {
        "pcp_policy_object": "PyObject *(struct __pyx_t_8pcpmodel_10cython_pcp_pcp_policy const *)",
    }
    assert cython_pcp.struct_sizes() == {"pcp_view": 136, "pcp_policy": 56}


@pytest.mark.parametrize("release", ["v6.7", "v7.3"])
@pytest.mark.parametrize("rule", ["kernel_rule", "failing"])
def test_the_restated_rule_changes_nothing(policies, release, rule):
    policy = getattr(policies[rule], "policy", None) or policies[rule].kernel_itself
    zones = [Zone(1 << 15, batch=31, high_min=100, high_max=3000, watermarks=(100, 200, 4000))]
    plain = busy(Memory(release, zones), np.random.default_rng(5))
    ours = busy(Memory(release, zones, policy=policy), np.random.default_rng(5))
    assert ours == plain


def test_a_rule_starts_from_the_kernel_s_answer(policies):
    drains = []
    for policy in (None, policies["four_batches"].policy):
        pages = PerCpuPages("v6.18", high_min=500, high_max=8192, policy=policy)
        drains.append(max(sum(pages.free()) for _ in range(12_000)))
    assert drains[0] == 63 << 5
    assert drains[1] == 4 * 63


def test_whether_high_orders_come_in_bulk_can_be_decided(policies):
    whole = []
    for policy in (None, policies["failing"].never_in_bulk):
        pages = PerCpuPages("v6.7", high=2000, policy=policy)
        whole.append(sum(sum(pages.free(1)) for _ in range(500)))
    assert whole[0] > 0
    assert whole[1] == 0


def test_a_wrong_answer_about_bulk_is_refused(policies):
    pages = PerCpuPages("v6.7", high=2000, policy=policies["failing"].two_is_no_answer)
    assert pages.free() == []  # nobody asks about single pages
    with pytest.raises(pm.InputError, match=r"free_high returned 2; allowed: 0\.\.1"):
        pages.free(1)


@pytest.mark.parametrize(
    ("release", "refill", "drain", "most"),
    [("v6.6", 63, 3937, 21), ("v6.6+p4", 63, 2016, 5), ("v6.7", 2016, 2016, 5)],
)
def test_the_kernel_answers_with_the_factors_that_it_can_have(
    policies, release, refill, drain, most
):
    """A factor that is set to anything is held to the cap of the release, if it has one."""
    high = {"high_min": 4000, "high_max": 10_000} if release == "v6.7" else {"high": 4000}

    def answers(factor):
        pages = PerCpuPages(release, policy=policies["failing"].asks_with_factor(factor), **high)
        refilled, drained = pages.alloc(), []
        while not drained:
            drained = pages.free()
        return refilled, *drained, pages.free_factor

    for factor in (most, most + 1, 40, 127, 300, 2**31 - 1):  # 300 is 44 as a char
        assert answers(factor) == (refill, drain, most)
    for factor in (-1, -300, -(2**31)):
        assert answers(factor) == answers(0)


def test_buckets_grow_only_where_the_lock_is_contended(policies):
    pages = PerCpuPages("v6.7", high=500, policy=policies["bucket_growth"].policy)
    refills = []
    for waits in (0, 0, 1, 2, 9):
        while pages.count:
            pages.alloc()
        pages.waits = waits
        refills.append(pages.alloc())
    assert refills == [63, 63, 95, 143, 2016]
    for _ in range(4031 - pages.count):
        assert pages.free() == []
    assert pages.free() == [2016]


def test_misses_drive_the_length(policies):
    pages = PerCpuPages("v6.7", high_min=500, high_max=640, policy=policies["miss_driven"].policy)
    refills = []
    for _ in range(70):
        while pages.count:
            pages.alloc()
        refills.append(pages.alloc())
    assert refills == [*range(1, 64), *[63] * 7]
    drained = [sum(pages.free()) for _ in range(4000)]
    assert set(drained) == {0, 63}
    assert pages.count <= 63  # the length has come down to a batch


@pytest.mark.parametrize("kind", ["alone", "whole"])
def test_errors_in_a_callback_become_exceptions(policies, kind):
    failing = policies["failing"]

    def make(policy):
        if kind == "alone":
            return PerCpuPages("v6.18", high_min=4, high_max=8, policy=policy)
        return Memory("v6.18", [Zone(4096, batch=4, high_min=4, high_max=8)], policy=policy)

    def allocate(pages):
        return pages.alloc() if kind == "alone" else pages.alloc_many(np.zeros(50, np.int64))

    def free(pages):
        if kind == "alone":
            for _ in range(50):
                pages.free()
        else:
            held = np.array([pages.alloc() for _ in range(50)])
            pages.free_many(held)

    with pytest.raises(pm.InputError, match=r"nr_pcp_alloc returned 0; allowed: 1\.\."):
        allocate(make(failing.zero_blocks))
    with pytest.raises(pm.InputError, match="nr_pcp_free returned -2"):
        free(make(failing.negative_drain))
    with pytest.raises(RuntimeError, match="count is 3"):
        free(make(failing.raises))


def test_wrong_policies_are_refused(policies):
    with pytest.raises(pm.InputError, match=r"policy\.abi=99"):
        policies["failing"].unknown_abi()
    with pytest.raises(pm.InputError, match="NULL"):
        policies["failing"].null()
    for policy in (3, "kernel", policies["failing"]):
        with pytest.raises(pm.InputError, match="is not what pcp_policy_object"):
            PerCpuPages("v6.7", high=500, policy=policy)
        with pytest.raises(pm.InputError, match="is not what pcp_policy_object"):
            with_policy("v6.7", policy)  # before anything runs
        with pytest.raises(pm.InputError, match="is not what pcp_policy_object"):
            Memory("v6.7", [Zone(1024)], policy=policy)


def simulated(engine=Engine, **options):
    """Counters, lists and pages after a run with bursts, ticks and little memory."""
    work = pm.workload.page_fault1(6, pages=3000, fault_ns=300.0, unmap_ns=60.0)
    arguments = {
        "release": "v6.7",
        "machine": "sapphire-rapids",
        "workload": work,
        "cpus": 6,
        "nodes": 2,
        "memory_gib": 0.5,
        "watermark_scale_factor": 1500,
        "high_min_pages": 300,
        "seconds": 0.03,
        "stat_interval_s": 0.002,
    }
    state = prepare(make_spec(**arguments | options))
    assert engine(state).run()
    return (
        state.counters(), state.pcps(), state.order_digests, state.zone_free(), state.times_ps(),
        state.histograms(), state.page_digests(), state.page_lists(),
    )  # fmt: skip


@pytest.mark.parametrize("identity", [False, True])
def test_the_restated_rule_changes_nothing_in_a_simulation(policies, identity):
    plain = simulated(identity=identity)
    for engine in (Engine, PerPage):
        assert simulated(engine, identity=identity, policy=policies["kernel_rule"].policy) == plain


@pytest.mark.parametrize("rule", ["bucket_growth", "miss_driven"])
@pytest.mark.parametrize("identity", [False, True])
def test_engines_agree_under_a_rule_of_ones_own(policies, rule, identity):
    options = {"identity": identity, "policy": policies[rule].policy, "stat_interval_s": 0.0005}
    ours = simulated(Engine, **options)
    assert ours == simulated(PerPage, **options)
    assert ours[0] != simulated(identity=identity, stat_interval_s=0.0005)[0]


@pytest.mark.parametrize("engine", ["event", "per-page"])
@pytest.mark.parametrize(
    ("policy", "error", "says"),
    [
        ("zero_blocks", pm.InputError, "nr_pcp_alloc returned 0"),
        ("negative_drain", pm.InputError, "nr_pcp_free returned -2"),
        ("raises", RuntimeError, "count is "),
    ],
)
def test_errors_in_a_callback_end_the_simulation(policies, engine, policy, error, says):
    with pytest.raises(error, match=says):
        pm.simulate(
            release="v6.7",
            machine="sapphire-rapids",
            workload=pm.workload.page_fault1(4, pages=3000),
            cpus=4,
            memory_gib=4,
            high_pages=100,
            seconds=0.01,
            policy=getattr(policies["failing"], policy),
            engine=engine,
        )


def test_a_sweep_takes_no_rule_made_in_this_process(policies):
    arguments = {
        "release": "v6.7",
        "machine": "sapphire-rapids",
        "workload": pm.workload.page_fault1(4, pages=3000),
        "cpus": 4,
        "memory_gib": 4,
        "policy": policies["kernel_rule"].policy,
    }
    with pytest.raises(pm.InputError, match=r"a file for pcpmodel\.policy\(FILE\)"):
        pm.sweep(**arguments, high_pages=[100, 200])
    with pytest.raises(pm.InputError, match=r"a file for pcpmodel\.policy\(FILE\)"):
        pm.sweep(make_spec(**arguments), high_pages=[100, 200])
    with pytest.raises(pm.InputError, match="is not what pcp_policy_object"):
        pm.simulate(**arguments | {"policy": "kernel"})


# From a file, everywhere


@pytest.fixture
def four_batches(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    return pm.policy(ROOT / "examples/cython/four_batches.pyx")


WORK = {"machine": "sapphire-rapids", "cpus": 4, "memory_gib": 4, "seconds": 0.02, "warmup_s": 0.0,
        "high_pages": 2000}  # fmt: skip


def test_a_file_is_compiled_once(four_batches):
    again = pm.policy(ROOT / "examples/cython/four_batches.pyx")
    assert again == four_batches
    assert again.name == "four_batches"
    assert pickle.loads(pickle.dumps(again)) == four_batches
    cache = Path(os.environ["XDG_CACHE_HOME"], "pcpmodel/policies")
    assert [p.name for p in cache.iterdir()] == [f"{again.digest}.so"]


def test_a_compiled_file_that_is_damaged_is_compiled_again(four_batches):
    cache = Path(os.environ["XDG_CACHE_HOME"], "pcpmodel/policies")
    (library,) = cache.iterdir()
    half = library.read_bytes()[:-1000]
    library.unlink()  # it is loaded here
    library.write_bytes(half)
    with pytest.raises(pm.InputError, match="is not on this machine"):
        pickle.loads(pickle.dumps(four_batches))
    assert pm.policy(ROOT / "examples/cython/four_batches.pyx") == four_batches
    assert pickle.loads(pickle.dumps(four_batches)) == four_batches


def test_a_rule_goes_with_the_release_that_has_it_and_one_given_by_hand_stays(four_batches):
    work = pm.workload.page_fault1(2, pages=500)
    has, given = (
        make_spec(release=release, workload=work, policy=rule, **WORK)
        for release, rule in ((with_policy("v6.7", four_batches), None), ("v6.7", four_batches))
    )
    assert has.rules.endswith("with its own nr_pcp_free")
    assert varied(has, release="v6.18").rules == "v6.18"
    assert varied(given, release="v6.18").rules == "v6.18 with its own nr_pcp_free"
    rules = [run.rules for run in make_grid(given, release=["v6.12", "v6.18"]).specs]
    assert all(rule.endswith("with its own nr_pcp_free") for rule in rules)


SOURCES = {pm.policy: "examples/cython/four_batches.pyx", pm.tree: "pcpmodel/kernel/excerpt"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cdef int f(:\n", "line 1: "),
        ("policy = 3\n", "makes no policy"),
        ("x = 1\n", "makes no policy"),
    ],
)
def test_a_file_that_is_no_rule(tmp_path, monkeypatch, text, says):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "mine.pyx").write_text(text)
    with pytest.raises(pm.InputError, match=says) as error:
        pm.policy(tmp_path / "mine.pyx")
    assert "\n" not in str(error.value)
    with pytest.raises(pm.InputError, match="there is no such file"):
        pm.policy(tmp_path / "none.pyx")
    with pytest.raises(pm.InputError, match="is a directory; expected a regular file"):
        pm.policy(tmp_path)


@pytest.mark.parametrize("opened", SOURCES)
def test_the_home_of_nobody_is_refused_as_a_place_that_is_not_there(opened):
    with pytest.raises(pm.InputError, match=r"^~nobody-of-that-name/x.*[Nn]o such"):
        opened("~nobody-of-that-name/x")


@pytest.mark.parametrize("opened", SOURCES)
def test_the_compiler_that_is_not_there_is_the_one_that_was_asked_for(
    opened, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-cc")
    with pytest.raises(pm.InputError, match="no C compiler: no-such-cc is not there"):
        opened(ROOT / SOURCES[opened])


def test_a_run_records_which_file_decided(four_batches):
    rules = four_batches, pm.policy(ROOT / "examples/cython/kernel_rule.pyx"), None
    work = pm.workload.page_fault1(2, pages=500)
    told = [make_spec(release="v6.7", workload=work, policy=rule, **WORK) for rule in rules]
    has = make_spec(release=with_policy("v6.7", rules[0]), workload=work, **WORK)
    digests = [spec.as_dict().get("policy_digest") for spec in (*told, has)]
    assert digests == [rules[0].digest, rules[1].digest, None, rules[0].digest]


def test_a_sweep_puts_patches_on_a_release_with_a_rule(four_batches):
    work = {"name": "page_fault1", "processes": 2, "pages": 500}
    patches = ["", "auto-high", "-scaled-drains"]
    grid = make_grid(release="v6.6", workload=work, policy=four_batches, patch=patches, **WORK)
    assert [spec.release.name for spec in grid.specs] == [
        f"v6.6{patch} with four_batches" for patch in ("", "+auto-high", "-scaled-drains")
    ]
    for spec, patch in zip(grid.specs, patches, strict=True):
        assert spec.rules.endswith("with its own nr_pcp_free")
        bare = make_grid(release=["v6.6"], workload=work, patch=patch, **WORK).specs[0]
        assert spec.release.patches == bare.release.patches
    with pytest.raises(pm.InputError, match="unknown patch"):
        make_grid(release="v6.6", workload=work, policy=four_batches, patch=["", "mine"], **WORK)


def test_what_a_file_raises_names_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "mine.pyx").write_text("import not_a_module_of_anybody\n")
    for _ in range(2):  # compiled, then as it was compiled
        with pytest.raises(pm.InputError, match=r"mine\.pyx: ModuleNotFoundError: No module"):
            pm.policy(tmp_path / "mine.pyx")


@pytest.mark.parametrize("opened", SOURCES)
@pytest.mark.parametrize("compiles", [False, True])
def test_a_full_disk_is_said_with_the_file_and_is_no_fault_of_the_source(
    opened, compiles, tmp_path, monkeypatch
):
    """Which file was not said; of a linker that its disk is full, nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if compiles:
        linker = tmp_path / "cc"
        linker.write_text(
            "#!/bin/sh\necho 'ld: final close failed: No space left on device' >&2\nexit 1"
        )
        linker.chmod(0o755)
        monkeypatch.setenv("CC", str(linker))
    else:
        full = OSError(28, "No space left on device")
        monkeypatch.setattr(Path, "write_text", lambda *_: (_ for _ in ()).throw(full))
    said = rf"^{tmp_path}/cache/pcpmodel/\S+: cannot be written: No space left on device$"
    with pytest.raises(pm.InputError, match=said):
        opened(ROOT / SOURCES[opened])


def test_a_rule_goes_through_every_question(four_batches, tmp_path):
    path = pm.study.trajectory("v6.18", [("free", 12_000)], policy=four_batches)
    assert path.release == "v6.18 with four_batches"
    assert path.events["pages"].max() == 252
    ladder = pm.study.ladder("drain", names=["v6.18"], policy=four_batches)
    assert set(ladder.groups) == {"v6.18", "v6.18 with four_batches"}
    work = {"name": "page_fault1", "processes": 4, "pages": 6000}
    grid = pm.sweep(release=["v6.18", "v7.3"], workload=work, policy=four_batches, **WORK)
    assert list(grid["release"].to_numpy()) == ["v6.18 with four_batches", "v7.3 with four_batches"]
    one = pm.simulate(release="v6.18", workload=pm.workload.page_fault1(4, pages=6000),
                      policy=four_batches, **WORK)  # fmt: skip
    assert grid["score_per_s"].to_numpy()[0] == one.score_per_s
    assert one.spec.as_dict()["policy"] == ["nr_pcp_free"]
    letter = pm.cover_letter(["v6.18"], [work], "sapphire-rapids", seeds=2, policy=four_batches,
                             options={k: v for k, v in WORK.items() if k != "machine"})  # fmt: skip
    (table,) = letter.tables.values()
    assert list(table["rules"]) == ["v6.18", "v6.18 with four_batches"]
    assert pm.PerCpuPages(one.spec.release, high=500).release is one.spec.release


def test_a_rule_does_not_go_on_a_rule(four_batches):
    from pcpmodel.kernel.policies import with_policy

    state = with_policy("v6.18", four_batches)
    with pytest.raises(pm.InputError, match="has rules of its own already"):
        with_policy(state, four_batches)
    assert with_policy("v6.18", None) == pm.release("v6.18")


@pytest.mark.parametrize(
    "call",
    [
        "pm.PerCpuPages('v7.3', high=500, policy=rule).alloc()",
        "pm.Memory('v7.3', [pm.Zone(1 << 15)], policy=rule).alloc()",
        "pm.simulate('v7.3', 'sapphire-rapids', pm.workload.page_fault1(4), cpus=4, policy=rule)",
    ],
)
def test_a_rule_that_never_returns_is_stopped_by_ctrl_c(policies, call):
    where = Path(policies["failing"].__file__).parent
    code = f"""
import sys
sys.path.insert(0, {str(where)!r})
import pcpmodel as pm
from failing import never_returns as rule
pm.simulate, pm.Memory
print("begins", flush=True)
try:
    {call}
except KeyboardInterrupt:
    print("stopped", flush=True)
print(sum(range(10)), flush=True)
"""
    looping = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert looping.stdout.readline() == "begins\n"
        time.sleep(3)
        looping.send_signal(signal.SIGINT)
        said, _ = looping.communicate(timeout=30)
    finally:
        looping.kill()
    assert said.split() == ["stopped", "45"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_rule_that_never_returns_is_ended_by_whoever_ends_the_program(policies, number):
    where = Path(policies["failing"].__file__).parent
    code = f"""
import sys
sys.path.insert(0, {str(where)!r})
import pcpmodel as pm
from failing import never_returns as rule
from pcpmodel.signals import unwinding
with unwinding():
    try:
        pcp = pm.PerCpuPages('v7.3', high=500, policy=rule)
        print("begins", flush=True)
        pcp.alloc()
    finally:
        print("undone", flush=True)
"""
    looping = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert looping.stdout.readline() == "begins\n"
        time.sleep(1)
        looping.send_signal(number)
        said, _ = looping.communicate(timeout=30)
    finally:
        looping.kill()
    assert (said, looping.returncode) == ("undone\n", 128 + number)


def test_a_process_that_is_forked_while_a_rule_runs_is_ended_by_a_signal(policies):
    where = Path(policies["failing"].__file__).parent
    code = f"""
import os, signal, sys, threading, time
sys.path.insert(0, {str(where)!r})
import pcpmodel as pm
from failing import never_returns as rule

def fork():
    time.sleep(0.5)
    child = os.fork()
    if not child:
        signal.alarm(10)
        time.sleep(60)
    time.sleep(0.1)
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
run = {{"machine": "ice-lake", "workload": pm.workload.page_fault1(2), "cpus": 2, "seconds": 0.01}}
pm.simulate("v7.3", **run)  # loads what it needs
threading.Thread(target=fork).start()
pm.simulate("v7.3", policy=rule, **run)
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.stdout == "7\n"


def test_the_conclusion_says_whether_a_simpler_rule_would_have_done(policies):
    work = pm.study.recorded_work(
        "7.2-detail-4cpu", ["v6.6", "v6.7", "v7.2"], policies["failing"].kernel_itself
    )
    said = pm.study.policy_surprise(work).text
    # The kernel's own rule again, on the recorded kernel.
    assert "Would the simpler rule have done for this work?" in said
    table = work.table.set_index("release")
    least = table.loc[["v6.7", "v7.2"], "zone_lock_holds"].min()
    change = 100 * (table["zone_lock_holds"].iloc[-1] / least - 1)
    assert f"{change:+.0f} % holds against" in said

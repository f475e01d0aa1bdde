"""Recorded processes drawn anew, and memory that goes at once."""

# SPDX-License-Identifier: GPL-2.0-only

import importlib
import json
import random
import shutil
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

import pcpmodel as pm
from helpers.paths import ROOT
from helpers.simulation import MACHINE, assert_same
from pcpmodel.cli import main
from pcpmodel.errors import InputError
from pcpmodel.simulation.spec import make_spec
from pcpmodel.trace.ftrace import EVENT, EVENT_IDS
from pcpmodel.trace.packed import open_text
from pcpmodel.trace.processes import Processes
from pcpmodel.workload import ALL, Channel, Program, Task, Workload
from pcpmodel.workload.ops import OPS

RUN = {"machine": MACHINE, "cpus": 8, "nodes": 2, "memory_gib": 16}
RECORDINGS = pm.workload.recordings()
NEW = {
    "ring": pm.workload.recorded("6.18-exitstorm", 8, page_us=0.5),
    "no ring": pm.workload.recorded("6.12-build", 8, page_us=0.5),
    "huge pages": pm.workload.recorded("6.12-thp", 8, page_us=0.5),
    "pairs": pm.workload.recorded("6.18-unixpair", 8),
    "containers": pm.workload.containers(8),
    "exit on one CPU": pm.workload.exit_storm(4, pages=12_000, fault_ns=200.0),
    "exit on all": pm.workload.exit_storm(4, pages=12_000, fault_ns=200.0, spread=True),
    "files": pm.workload.file_churn(8),
    "large folios": pm.workload.file_churn(8, order=3),
    "burst": pm.workload.idle_after_burst(8, idle_s=0.01, fault_ns=300.0),
}


def run(workload, **options):
    return pm.simulate(workload=workload, **{"release": "v6.7", "seconds": 0.5, **RUN} | options)


def played(workload, task, rounds, seed=1):
    """What a program asks for, drawn by other means than the engine's: op, blocks of each."""
    program, rng = workload.tasks[task].program, random.Random(seed)
    ops, at, loops = program.compiled().tolist(), 0, Counter()
    name = {code: what for what, code in OPS.items()}
    while rounds:
        _, code, n, _, _, order, _, target, depth = ops[at]
        at += 1
        what = name[code]
        if what == "loop":
            loops[depth] += 1
            rounds -= n == 0
            if n == 0 or loops[depth] < n:
                at = target
            else:
                loops[depth] = 0
        elif what == "maybe":
            at = at if rng.randrange(65536) < n else target
        elif what == "pick":
            at = int(program.tables[target][rng.randrange(n)])
        elif what in ("alloc", "free"):
            yield what, order, n


def given():
    p = Program()
    p.give(ALL)
    return p


def shares(counts):
    total = sum(counts.values())
    return {k: v / total for k, v in counts.items()}


def distance(a, b):
    """Total variation between two distributions, 0..1."""
    a, b = shares(a), shares(b)
    return sum(abs(a.get(k, 0) - b.get(k, 0)) for k in {*a, *b}) / 2


@pytest.mark.parametrize("recording", RECORDINGS)
def test_what_is_drawn_has_the_recorded_orders_and_run_lengths(recording):
    tables = pm.datasets.load_workload(recording.replace(".", "-")).tables
    orders, runs = Counter(), {"alloc": Counter(), "free": Counter()}
    for what, order, blocks in played(pm.workload.recorded(recording, 2), 0, 1500):
        if what == "alloc":
            orders[order] += blocks
        if blocks != ALL:
            runs[what][blocks.bit_length() - 1] += 1
    recorded = Counter()
    for order, _, n in tables["orders"].itertuples(index=False):
        recorded[order] += n
    classes = {"alloc": Counter(), "free": Counter(), "send": Counter()}
    for what, shortest, _, n in tables["run_lengths"].itertuples(index=False):
        classes[what][shortest.bit_length() - 1] = n
    # The processes that only start and end a stream are not part of it.
    assert distance(orders, recorded) < (0.1 if "unixpair" in recording else 0.05)
    # Of the few runs of the writers of files a fifth are slabs that outlived the recording.
    assert distance(runs["alloc"], classes["alloc"]) < (0.2 if "tmpfs" in recording else 0.05)
    # Of the others few runs are freed at home: what a process leaves at its end outweighs them.
    if not any(kind in recording for kind in ("unix", "mixed", "tmpfs")):
        assert distance(runs["free"], classes["free"]) < 0.1


def test_a_summary_follows_from_its_recording(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    native = importlib.import_module("summarise_native")
    tool = importlib.import_module("summarise_recorded")
    monkeypatch.setattr(native, "OUT", tmp_path)
    source = "data/traces/6.12-tmpfs-4cpu/trace.txt.zst"
    tool.summarise("6.12-tmpfs", ROOT / source, source, tool.native_rates())
    made = sorted((tmp_path / "workload/6-12-tmpfs").iterdir())
    assert [f.name for f in made] == sorted(
        f.name for f in (ROOT / "data/workload/6-12-tmpfs").iterdir()
    )
    for file in made:
        assert file.read_bytes() == (ROOT / "data/workload/6-12-tmpfs" / file.name).read_bytes()


def test_an_exit_follows_the_pages_that_the_task_frees(tmp_path, monkeypatch):
    # do_exit() of v6.18 tells before exit_mm(): what was freed before it is not the exit's.
    monkeypatch.syspath_prepend(ROOT / "tools")
    native = importlib.import_module("summarise_native")
    tasks = [("sh-7", "alloc"), ("sh-7", "free"), ("sh-7", "exit"), ("sh-7", "alloc")]
    tasks += [("sh-7", "free")] * 3 + [("make-6", "free"), ("make-6", "alloc")]
    fields = {
        "alloc": "mm_page_alloc: pfn=0x1a4117 order=0 migratetype=1 gfp_flags=GFP_USER",
        "free": "mm_page_free: pfn=0x1a4117 order=0",
        "exit": "sched_process_exit: comm=sh pid=7 prio=120 group_dead=true",
    }
    lines = [
        f"{task} [001] ..... 5444.7903{i:02}: {fields[what]}"
        for i, (task, what) in enumerate(tasks)
    ]
    trace = tmp_path / "trace.txt"
    trace.write_text("# tracer: nop\n" + "\n".join(lines) + "\n")
    told = [(what, blocks) for _, what, _, _, blocks, _ in native.timeline_of(trace)]
    assert told == [("alloc", 1), ("free", 1), ("alloc", 1), ("free", 3), ("exit", 1),
                    ("free", 1), ("alloc", 1)]  # fmt: skip


def test_a_recording_of_ones_own_becomes_a_workload(tmp_path, monkeypatch):
    for part in ("hardware", "workload"):
        shutil.copytree(ROOT / "data" / part, tmp_path / part)
    monkeypatch.setenv("PCPMODEL_DATA", str(tmp_path))
    add = ["data", "add", "workload", str(ROOT / "data/traces/6.18-pf1-2cpu"), "--name", "mine"]
    done = CliRunner().invoke(main, [*add, "--page-us", "2", "--json"])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["workload"] == "mine"
    assert answer["processes"] > 3
    assert CliRunner().invoke(main, add).exit_code == 2  # it is there already
    assert CliRunner().invoke(main, ["data", "check", str(tmp_path)]).exit_code == 0
    assert "mine" in pm.workload.recordings()
    result = run(pm.workload.recorded("mine", 8), stat_interval_s=0.0)
    sums = {k: int(v.sum()) for k, v in result.per_cpu.items()}
    took = result.busy_ps - sums["wait_ps"] - sums["hold_ps"]
    assert took / 1e6 / sums["alloc_pages"] == pytest.approx(2.0, rel=0.05)
    with pytest.raises(InputError, match="workload name"):
        pm.study.add_workload(ROOT / "data/traces/6.18-pf1-2cpu", "Mine")
    with pytest.raises(InputError, match="page_us=0"):
        pm.study.add_workload(ROOT / "data/traces/6.18-pf1-2cpu", "other", page_us=0)
    with pytest.raises(InputError, match="is it a recording"):
        pm.study.add_workload(tmp_path, "other")
    assert not (tmp_path / "workload/other").exists()


def test_a_long_recording_is_thinned_out():
    """Of more processes than can be drawn, evenly spaced ones; of long ones, the middle."""
    rows = np.zeros(2 * 700 + 2 * 5000, dtype=EVENT)
    alloc, free = (EVENT_IDS[f"mm_page_{what}"] for what in ("alloc", "free"))
    rows["event"] = alloc
    rows["time"] = np.arange(len(rows)) * 100
    rows["pid"][:1400] = np.repeat(np.arange(1, 701), 2)
    rows["a"][:1400] = np.repeat(np.arange(700), 2)
    rows["event"][1:1400:2] = free
    rows["pid"][1400:] = 900
    rows["a"][1400:] = np.repeat(np.arange(5000), 2)
    rows["event"][1401::2] = free

    names = SimpleNamespace(comms=["x"])
    recording = Processes((SimpleNamespace(rows=rows), names))
    tables = recording.tables(1.0)
    assert len(tables["processes"][1]) == 512
    assert recording.page_us() == pytest.approx(0.2, rel=0.01)
    alone = Processes((SimpleNamespace(rows=rows[1400:]), names))
    (process,) = alone.tables(1.0)["processes"][1]
    assert process[2] == round(10_000 / 800)
    assert process[3] == process[4] == 5000


@pytest.mark.parametrize("recording", RECORDINGS)
def test_cpu_time_per_page_is_the_recorded_one(recording):
    work = pm.workload.recorded(recording, 16)
    result = run(work, cpus=16, seconds=3.0, stat_interval_s=0.0, jitter=0.2)
    sums = {k: int(v.sum()) for k, v in result.per_cpu.items()}
    took = result.busy_ps - sums["wait_ps"] - sums["hold_ps"]
    figures = pm.datasets.load_workload(recording.replace(".", "-")).tables["figures"]
    expected = figures.set_index("quantity")["value"]["CPU time per page at native speed"]
    assert took / 1e6 / sums["alloc_pages"] == pytest.approx(expected, rel=0.05)


def test_a_native_recording_keeps_its_own_time_and_an_emulated_one_takes_it_over():
    def figure(recording, what):
        frame = (
            pm.datasets.load_workload(recording).tables["figures"].set_index("quantity")["value"]
        )
        return frame[f"CPU time per page {what}"]

    native = figure("native-build", "as recorded")
    assert figure("native-build", "at native speed") == native
    assert figure("6-12-build", "at native speed") == native < figure("6-12-build", "as recorded")
    busy = (
        pm.datasets.load_workload("native-kbuild").tables["figures"].set_index("quantity")["value"]
    )
    # Three seconds of the trace against 40 s of accounting.
    assert native == pytest.approx(busy["busy CPU time per page allocated"], rel=0.15)


def test_blocks_freed_elsewhere_are_freed_elsewhere():
    """A stream's second CPU frees what the first allocates; processes keep to their CPU."""
    pairs = run(pm.workload.recorded("native-unix", 8), jitter=0.0)
    assert (pairs.per_cpu["alloc_pages"] > 0).tolist() == [True, False] * 4
    assert pairs.per_cpu["free_pages"][::2].sum() < 1e-3 * pairs.per_cpu["free_pages"].sum()
    ring = run(pm.workload.recorded("6.18-exitstorm", 8), seconds=2.0)
    alloc, free = ring.per_cpu["alloc_pages"], ring.per_cpu["free_pages"]
    assert free.sum() == pytest.approx(alloc.sum(), rel=0.05)
    assert ring.per_cpu["idle_ps"].sum() < 0.15 * ring.cpu_ps


@pytest.mark.parametrize(
    ("name", "release", "within"),
    [
        ("6.1-unixpair", "debian-6.1.192", 0.02),
        ("6.18-unixpair", "debian-6.18.15", 0.04),
        ("6.12-tcp", "debian-6.12.107", 0.15),
        ("6.12-tmpfs", "debian-6.12.107", 0.05),
        ("6.18-exitstorm", "debian-6.18.15", 0.08),
        ("7.2-exitstorm", "debian-7.2.13", 0.08),
    ],
)
def test_as_many_pages_are_drained_as_the_recorded_kernel_drained(name, release, within):
    """The same processes on as many CPUs, if each ran one at a time: not builds, not the mix."""
    rows = pm.recording(ROOT / f"data/traces/{name}-4cpu").trace[0].rows

    def pages(event):
        return (1 << rows["b"][rows["event"] == EVENT_IDS[event]]).sum()

    figures = pm.datasets.load_workload(name.replace(".", "-")).tables["figures"]
    page_us = figures.set_index("quantity")["value"]["CPU time per page as recorded"]
    result = run(
        pm.workload.recorded(name, 4, nodes=1, page_us=float(page_us)),
        release=release,
        cpus=4,
        nodes=1,
        memory_gib=4,
        seconds=10.0,
        warmup_s=2.0,
        nohz_idle=False,
    )
    drained = result.per_cpu["drain_pages"].sum() / result.per_cpu["alloc_pages"].sum()
    assert drained == pytest.approx(
        pages("mm_page_pcpu_drain") / pages("mm_page_alloc"), abs=within
    )


@pytest.mark.parametrize("zones", [1, 2])
@pytest.mark.parametrize(
    "work",
    [
        *(pm.workload.recorded(c, 8) for c in RECORDINGS),
        pm.workload.recorded("6.18-exitstorm", 1),
        pm.workload.recorded("6.18-exitstorm", 7),
        pm.workload.recorded("native-unix", 4, nodes=1),
        pm.workload.containers(8),
        pm.workload.exit_storm(1, pages=8192),
        pm.workload.exit_storm(2, pages=8192),
        pm.workload.file_churn(8, order=9, file_pages=1024),
    ],
    ids=lambda w: f"{w.name} {w.params.get('recording', '')} {len(w.tasks)}",
)
def test_a_workload_holds_no_more_than_it_says(work, zones):
    result = run(work, release="v6.12", seconds=1.0, zones_per_node=zones)
    free = sum(result.zone_free_pages) + result.pages_in_pcp[-1]
    assert 0 < result.pages_held.max() <= work.pages
    assert 16 * 2**18 - free <= work.pages
    assert result.score > 0


def test_another_seed_draws_other_processes():
    work = pm.workload.recorded("6.12-build", 8, page_us=2.0)
    a, b, c = (run(work, seed=s).per_cpu["alloc_pages"] for s in (1, 1, 2))
    assert (a == b).all()
    assert (a != c).any()


@pytest.mark.parametrize("name", NEW)
@pytest.mark.parametrize("release", ["debian-6.1.192", "v6.6+p3", "v6.7", "v7.2"])
def test_engines_agree(name, release):
    spec = make_spec(
        workload=NEW[name], release=release, seconds=0.04, stat_interval_s=0.005, **RUN
    )
    assert assert_same(spec)["events"] > 10


@pytest.mark.parametrize("name", NEW)
def test_engines_agree_page_by_page(name):
    spec = make_spec(
        workload=NEW[name],
        release="v6.12",
        seconds=0.02,
        identity=True,
        caches=True,
        nohz_idle=False,
        **RUN,
    )
    result = assert_same(spec)
    assert sum(c["found_memory"] for c in result["counters"]) > 0


def test_one_cpu_frees_all_of_a_process_and_its_page_tables():
    result = run(pm.workload.exit_storm(4, pages=8 * 512, fault_ns=300.0), jitter=0.0)
    freed = result.per_cpu["free_pages"]
    assert freed[0] == pytest.approx(result.score * (8 * 512 + 8), rel=0.05)
    assert (freed[1:] == 0).all()
    assert (result.per_cpu["alloc_pages"] > 0).all()
    assert result.pages_held.max() <= 8 * 513  # one process after the other
    spread = run(pm.workload.exit_storm(4, pages=8 * 512, fault_ns=300.0, spread=True))
    assert (spread.per_cpu["free_pages"] > 0).all()
    assert result.per_cpu["lru_holds"].sum() > 0


def test_large_folios_go_straight_through_the_lists_of_their_order():
    small, large = (run(pm.workload.file_churn(8, order=o)) for o in (0, 3))
    for result, order in ((small, 0), (large, 3)):
        blocks, pages = (result.per_cpu[f"alloc_{k}"].sum() for k in ("blocks", "pages"))
        assert pages == blocks << order
    assert small.per_cpu["lru_holds"].sum() > 4 * large.per_cpu["lru_holds"].sum()


def test_lists_empty_after_a_burst_where_the_vmstat_worker_runs():
    work = pm.workload.idle_after_burst(8, idle_s=10.0)
    rest, work_on = (
        run(work, release="v6.12", seconds=8.0, nohz_idle=nohz, samples=80).pages_in_pcp
        for nohz in (True, False)
    )
    assert rest[-1] == rest[10] > 1000
    assert work_on[-1] < 0.5 * work_on[4]
    assert (np.diff(work_on[10:]) <= 0).all()


def test_lists_decay_by_the_steps_that_a_kernel_was_seen_to_take():
    """`high` and with it a full list, of 7.2 in a guest of 4 CPUs and 4 GiB, second by second."""
    recording = pm.recording(ROOT / "data/traces/7.2-idle-decay-4cpu")
    seen = {
        pcp.high
        for dump in recording.series()
        for (_, zone, _), pcp in dump.pcps.items()
        if zone == "Normal" and pcp.count == pcp.high
    }
    managed = sum(z.managed for z in recording.snapshot("before").zones if z.name == "Normal")
    result = run(
        pm.workload.idle_after_burst(4, pages=40_000, idle_s=50.0),
        release="debian-7.2.13",
        cpus=4,
        nodes=1,
        memory_gib=managed / 2**18,
        seconds=30.0,
        samples=300,
        nohz_idle=False,
    )
    simulated = set(result.pcp_pages_by_cpu.ravel().tolist())
    assert len(seen & simulated) >= 0.6 * len(seen) > 10
    # The others are of lists that were used in between.


def test_a_cpu_that_wakes_now_and_then_decays_its_lists_then():
    rest, wakes = (
        run(
            pm.workload.idle_after_burst(8, idle_s=20.0, wake_s=wake_s),
            release="v6.12",
            seconds=8.0,
            samples=80,
        ).pages_in_pcp
        for wake_s in (None, 2.0)
    )
    assert rest[-1] == rest[10]
    assert 0.2 * rest[-1] < wakes[-1] < 0.8 * rest[-1]


def test_containers_mix_their_recordings_by_share():
    build, storm, both = (
        run(pm.workload.containers(8, shares=shares), seconds=8.0, jitter=0.2)
        for shares in (
            {"native-build": 1.0},
            {"6.18-exitstorm": 1.0},
            {"native-build": 0.5, "6.18-exitstorm": 0.5},
        )
    )
    assert build.score < both.score < storm.score
    # The time of a mean process of the mix is the mean of the two.
    expected = 2 / (1 / build.score + 1 / storm.score)
    assert both.score == pytest.approx(expected, rel=0.15)


def test_a_choice_is_drawn_by_its_weight_and_every_kind_travels():
    p, q = Program(), Program()
    with p.forever():
        p.work(100)
        p.one_of(
            [
                lambda: p.alloc(3, ns=50),
                lambda: p.alloc(1, order=2, migratetype="unmovable", ns=50),
            ],
            [3, 1],
        )
        p.send(0, movable_0=ALL, unmovable_2=ALL)
    with q.forever():
        q.recv(0, movable_0=ALL, unmovable_2=ALL)
        q.work(10)
        q.free(ALL, ns=10, of="peer")
        q.free(ALL, order=2, migratetype="unmovable", ns=10, of="peer")
    tasks = (Task(p, 0, (0,)), Task(q, 0, (0,), peer=0))
    pair = Workload("kinds", tasks, "messages", 200, (Channel(0, 1),))
    for identity in (False, True):
        spec = make_spec(workload=pair, release="v6.7", seconds=0.02, identity=identity, **RUN)
        a, b = assert_same(spec)["counters"][:2]
        large = (a["alloc_pages"] - a["alloc_blocks"]) / 3
        assert large / (large + (a["alloc_blocks"] - large) / 3) == pytest.approx(0.25, abs=0.02)
        assert b["free_pages"] == pytest.approx(a["alloc_pages"], abs=100)


def test_blocks_of_one_zone_cannot_arrive_as_those_of_another():
    with pytest.raises(InputError, match="moves blocks of zone"):
        run(pm.workload.exit_storm(4, pages=8192), zones_per_node=2)


def test_operations_that_changed_after_the_workload_was_made_name_a_slot_that_is_there():
    pair = pm.workload.unix_stream(1)  # one channel each
    ops = pair.tasks[0].program.ops
    which = next(i for i, op in enumerate(ops) if op.code in (OPS["give"], OPS["take"]))
    ops[which] = ops[which]._replace(target=3)
    with pytest.raises(InputError, match="uses channel slot 3, has"):
        run(pair)


def _unlanded():
    program = Program()
    program.enter([lambda: program.work(1)])
    return program


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pm.workload.recorded("6.12-bild", 4), "did you mean '6.12-build'"),
        (lambda: pm.workload.recorded("6.12-build", 0), "processes=0"),
        (lambda: pm.workload.recorded("6.12-build", 4, page_us=0), "page_us=0"),
        (lambda: pm.workload.recorded("native-unix", 3), "even number"),
        (lambda: pm.workload.containers(4, shares={"native-build": 0.5}), "add up to 0.5"),
        (lambda: pm.workload.containers(4, shares={"native-build": True}), "shares=.*True"),
        (lambda: pm.workload.containers(4, shares={"native-unix": 1.0}), "stream"),
        (lambda: pm.workload.exit_storm(4, pages=100), "pages=100"),
        (lambda: pm.workload.exit_storm(4, unmap_ns=0), "unmap_ns=0"),
        (lambda: pm.workload.file_churn(4, order=11), "order=11"),
        (lambda: pm.workload.file_churn(4, file_pages=7, order=2), "no multiple"),
        (lambda: pm.workload.idle_after_burst(4, idle_s=-1), "idle_s=-1"),
        (lambda: Workload("x", (Task(given()),), "nothing", 0), "channel slot 0"),
        (lambda: Program().one_of([]), "not 1..1024"),
        (lambda: Program().one_of([lambda: None], [0]), "weight=0"),
        (lambda: Program().land(0), "no choice of enter"),
        (lambda: _unlanded().compiled(), "1 of its choices do not land"),
        (lambda: pm.workload.make("exitstorm"), "did you mean 'exit_storm'"),
    ],
)
def test_impossible_workloads_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    ("name", "comes", "goes"),
    [("exit on all", "fault", "exit"), ("exit on one CPU", "fault", "exit"),
     ("files", "write", "unlink")],
)  # fmt: skip
def test_what_comes_and_goes_is_told_by_phase(name, comes, goes):
    result = run(NEW[name], seconds=0.2)
    assert list(result.phases) == ["", comes, goes]
    filled, emptied = result.phases[comes], result.phases[goes]
    assert filled.per_cpu["free_pages"].sum() == emptied.per_cpu["alloc_pages"].sum() == 0
    assert filled.refills == result.refills
    assert emptied.drains == pytest.approx(result.drains, abs=8)  # the vmstat worker's elsewhere
    assert filled.cpu_ps > emptied.cpu_ps


def test_a_workload_of_a_recording_that_is_not_whole(tmp_path):
    """Events of one CPU after the other say nothing of who freed what; lost ones are named."""
    whole = ROOT / "data/traces/6.18-pf1-2cpu"
    lines = b"".join(open_text(whole / "trace.txt.zst")).splitlines(keepends=True)
    of_cpu = [[line for line in lines if b" [%03d] " % cpu in line] for cpu in (0, 1)]
    (tmp_path / "data").mkdir()
    for name, text in {"apart": [*of_cpu[0], *of_cpu[1]], "cut": lines[:30000]}.items():
        shutil.copytree(whole, tmp_path / name)
        (tmp_path / name / "trace.txt.zst").unlink()
        (tmp_path / name / "trace.txt").write_bytes(b"".join(text))
    add = ["data", "add", "workload", "--data", str(tmp_path / "data"), "--name", "mine"]
    apart, cut = (CliRunner().invoke(main, [*add, str(tmp_path / n)]) for n in ("apart", "cut"))
    assert apart.exit_code == 2
    assert f"row {len(of_cpu[0]) + 1}: time goes backwards, from " in apart.stderr
    assert cut.exit_code == 0
    assert "; 14107 events were lost, and what processes did then is not in it" in cut.stdout
    told = (tmp_path / "data/workload/mine/datapackage.json").read_text()
    assert "; 14107 events were lost" in told

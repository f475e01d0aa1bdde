"""Policies of one's own: the public C interface, its examples, its errors."""

import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

import pcpmodel as pm
from pcpmodel import cython_pcp
from pcpmodel.kernel.memory import Memory
from pcpmodel.kernel.pcp import PerCpuPages
from pcpmodel.kernel.zone import Zone
from pcpmodel.simulation.engine import Engine
from pcpmodel.simulation.per_page import PerPage
from pcpmodel.simulation.run import make_spec, prepare

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples" / "cython").glob("*.pyx"))

# Wrong on purpose.
FAILING = """
from pcpmodel.cython_pcp cimport pcp_abi, pcp_policy, pcp_policy_object, pcp_view

cdef int zero(pcp_view *v, void *ctx) except -1 nogil:
    return 0

cdef int minus(pcp_view *v, void *ctx) except -1 nogil:
    return -2

cdef int angry(pcp_view *v, void *ctx) except -1 nogil:
    if v.count > 2:
        with gil:
            raise RuntimeError(f"count is {v.count}")
    return 1 << 20

cdef pcp_policy policies[4]
for i in range(4):
    policies[i].abi = pcp_abi()
policies[0].nr_pcp_alloc = zero
policies[1].nr_pcp_free = minus
policies[2].nr_pcp_high = angry
policies[3].abi = 99

zero_blocks = pcp_policy_object(&policies[0])
negative_drain = pcp_policy_object(&policies[1])
raises = pcp_policy_object(&policies[2])

def unknown_abi():
    return pcp_policy_object(&policies[3])

def null():
    return pcp_policy_object(NULL)
"""

SETUP = """
from setuptools import Extension, setup
from Cython.Build import cythonize
names = {names!r}
setup(ext_modules=cythonize(
    [Extension(n, [n + ".pyx"], extra_compile_args=["-O0"]) for n in names], language_level=3))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the examples as a user would: beside nothing but the package."""
    where = tmp_path_factory.mktemp("policies")
    for path in EXAMPLES:
        shutil.copy(path, where)
    (where / "failing.pyx").write_text(FAILING)
    names = [*(path.stem for path in EXAMPLES), "failing"]
    (where / "build_policies.py").write_text(SETUP.format(names=names))
    package = str(Path(pm.__file__).parents[1])
    run = subprocess.run(
        [sys.executable, "build_policies.py", "-q", "build_ext", "--inplace"],
        cwd=where,
        env={"PYTHONPATH": package, "PATH": "/usr/bin:/bin:/usr/local/bin"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    modules = {}
    for name in names:
        (library,) = where.glob(name + ".*.so")
        spec = spec_from_file_location(name, library)
        modules[name] = module_from_spec(spec)
        spec.loader.exec_module(modules[name])
    return modules


def test_exported_functions_and_structs_are_those_released():
    # Compiled users break when one of these changes.  Add, never edit; a new
    # struct gets a new name.
    signatures = {name: repr(c).split('"')[1] for name, c in cython_pcp.__pyx_capi__.items()}
    assert signatures == {
        "pcp_abi": "int (void)",
        "pcp_policy_object": "PyObject *(struct __pyx_t_8pcpmodel_10cython_pcp_pcp_policy const *)",
    }
    assert cython_pcp.struct_sizes() == {"pcp_view": 112, "pcp_policy": 48}


def busy(mem, rng):
    """Bursts of allocations and frees of several orders, ticks between them."""
    held = []
    for _ in range(60):
        order = int(rng.choice([0, 0, 0, 1, 2, 3]))
        if rng.random() < 0.5 or len(held) < 300:
            for _ in range(int(rng.integers(1, 400)) >> order):
                pfn = mem.alloc(0, order, int(rng.integers(0, 3)))
                if pfn is not None:
                    held.append((pfn, order))
        else:
            for _ in range(int(rng.integers(1, 300))):
                mem.free(0, *held.pop(int(rng.integers(len(held)))))
        if rng.random() < 0.2:
            mem.refresh_cpu_vm_stats(0)
    return mem.state()


def test_the_restated_rule_changes_nothing(built):
    zones = [Zone(1 << 15, batch=31, high_min=100, high_max=3000, watermarks=(100, 200, 4000))]
    plain = busy(Memory("v6.7", zones), np.random.default_rng(5))
    ours = busy(Memory("v6.7", zones, policy=built["kernel_rule"].policy), np.random.default_rng(5))
    assert ours == plain


def test_buckets_grow_only_where_the_lock_is_contended(built):
    pages = PerCpuPages("v6.7", high=500, policy=built["bucket_growth"].policy)
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


def test_misses_drive_the_length(built):
    pages = PerCpuPages("v6.7", high_min=500, high_max=640, policy=built["miss_driven"].policy)
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
def test_errors_in_a_callback_become_exceptions(built, kind):
    failing = built["failing"]

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


def test_wrong_policies_are_refused(built):
    with pytest.raises(pm.InputError, match=r"policy\.abi=99"):
        built["failing"].unknown_abi()
    with pytest.raises(pm.InputError, match="NULL"):
        built["failing"].null()
    for policy in (3, "kernel", built["failing"]):
        with pytest.raises(pm.InputError, match="is not what pcp_policy_object"):
            PerCpuPages("v6.7", high=500, policy=policy)
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
def test_the_restated_rule_changes_nothing_in_a_simulation(built, identity):
    plain = simulated(identity=identity)
    for engine in (Engine, PerPage):
        assert simulated(engine, identity=identity, policy=built["kernel_rule"].policy) == plain


@pytest.mark.parametrize("rule", ["bucket_growth", "miss_driven"])
@pytest.mark.parametrize("identity", [False, True])
def test_engines_agree_under_a_rule_of_ones_own(built, rule, identity):
    options = {"identity": identity, "policy": built[rule].policy, "stat_interval_s": 0.0005}
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
def test_errors_in_a_callback_end_the_simulation(built, engine, policy, error, says):
    with pytest.raises(error, match=says):
        pm.simulate(
            release="v6.7",
            machine="sapphire-rapids",
            workload=pm.workload.page_fault1(4, pages=3000),
            cpus=4,
            memory_gib=4,
            high_pages=100,
            seconds=0.01,
            policy=getattr(built["failing"], policy),
            engine=engine,
        )


def test_a_sweep_takes_no_rule_of_ones_own(built):
    arguments = {
        "release": "v6.7",
        "machine": "sapphire-rapids",
        "workload": pm.workload.page_fault1(4, pages=3000),
        "cpus": 4,
        "memory_gib": 4,
        "policy": built["kernel_rule"].policy,
    }
    with pytest.raises(pm.InputError, match=r"call simulate\(policy=...\)"):
        pm.sweep(**arguments, high_pages=[100, 200])
    with pytest.raises(pm.InputError, match=r"call simulate\(policy=...\)"):
        pm.sweep(make_spec(**arguments), high_pages=[100, 200])
    with pytest.raises(pm.InputError, match="is not what pcp_policy_object"):
        pm.simulate(**arguments | {"policy": "kernel"})

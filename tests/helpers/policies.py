"""Rules of one's own: the examples and wrong ones, compiled."""

# SPDX-License-Identifier: GPL-2.0-only

import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location

from helpers.paths import ROOT

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

cdef int twice(pcp_view *v, void *ctx) except -1 nogil:
    return 2

cdef int never(pcp_view *v, void *ctx) except -1 nogil:
    return 0

cdef int as_it_is(pcp_view *v, void *ctx) except -1 nogil:
    return v.kernel(v)

cdef int forever(pcp_view *v, void *ctx) except -1 nogil:
    while v.batch > 0:
        v.user[0] += 1
    return 1

cdef int factor = 0

cdef int with_factor(pcp_view *v, void *ctx) except -1 nogil:
    v.alloc_factor = v.free_factor = factor
    return v.kernel(v)

cdef pcp_policy policies[9]
for i in range(9):
    policies[i].abi = pcp_abi()
policies[0].nr_pcp_alloc = zero
policies[1].nr_pcp_free = minus
policies[2].nr_pcp_high = angry
policies[3].abi = 99
policies[4].free_high = twice
policies[5].free_high = never
policies[6].nr_pcp_alloc = policies[6].nr_pcp_high = as_it_is
policies[6].nr_pcp_free = policies[6].decay_pcp_high = policies[6].free_high = as_it_is

policies[7].nr_pcp_alloc = forever
policies[8].nr_pcp_alloc = policies[8].nr_pcp_free = with_factor

zero_blocks = pcp_policy_object(&policies[0])
negative_drain = pcp_policy_object(&policies[1])
raises = pcp_policy_object(&policies[2])
two_is_no_answer = pcp_policy_object(&policies[4])
never_in_bulk = pcp_policy_object(&policies[5])
never_returns = pcp_policy_object(&policies[7])
kernel_itself = pcp_policy_object(&policies[6])

def asks_with_factor(int given):
    global factor
    factor = given
    return pcp_policy_object(&policies[8])

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


def build_policies(where):
    """Build the examples as a user would: beside nothing but the package."""
    for path in EXAMPLES:
        shutil.copy(path, where)
    (where / "failing.pyx").write_text(FAILING)
    names = [*(path.stem for path in EXAMPLES), "failing"]
    (where / "build_policies.py").write_text(SETUP.format(names=names))
    run = subprocess.run(
        [sys.executable, "build_policies.py", "-q", "build_ext", "--inplace"],
        cwd=where,
        env={"PATH": "/usr/bin:/bin:/usr/local/bin"},
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

"""A function of a kernel tree that does not come back, in a state that no trial came to."""

# SPDX-License-Identifier: GPL-2.0-only

import concurrent.futures
import multiprocessing
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

import pcpmodel as pm
from pcpmodel.cli import main
from pcpmodel.errors import InputError
from pcpmodel.kernel.memory import Memory
from pcpmodel.kernel.pcp import PerCpuPages
from pcpmodel.kernel.tree_pages import TreePages
from pcpmodel.kernel.zone import Zone

#: In the commit of a free, with more pages on the lists than a trial puts there.
BEYOND = 400_000
WRONG = {
    "endless": (f"	while (pcp->count > {BEYOND})\n		batch++;\n", "comes to no end within 3 s"),
    "zero": (
        f"	if (pcp->count > {BEYOND})\n		batch += 63 / (pcp->high_min - 500000);\n",
        r"divides by zero \(SIGFPE\)",
    ),
    "null": (
        f"	if (pcp->count > {BEYOND})\n		batch += *(volatile int *)0;\n",
        r"touches what is not mapped \(SIGSEGV\)",
    ),
    # uses up the stack of its thread
    "recursion": (
        f"	if (pcp->count > {BEYOND} && !free_frozen_page_commit(zone, pcp, page, migratetype, 0,"
        " fpi_flags))\n		return batch == 7;\n",
        r"touches what is not mapped \(SIGSEGV\)",
    ),
}  # fmt: skip
PLACE = "	if (pcp->count < high)\n"
STATE = r"where count [45]0000[01], high 500000, high_min 500000, high_max 500000, batch 63"
SIZES = {"high_min_pages": 500_000, "cpus": 2, "memory_gib": 16, "warmup_s": 0.0, "seconds": 1.0}


@pytest.fixture(scope="module")
def wrong(changed):
    """The tree that goes wrong in one of these ways, and what is said of it."""
    folders = {k: changed((PLACE, text + PLACE)) for k, (text, _) in WRONG.items()}
    return lambda how: (folders[how], WRONG[how][1])


def message(folder, what, how):
    # A stack may end in the middle of what a sanitizer looks at, which is nowhere in the tree.
    somewhere = "?" if how == "recursion" else ""
    return (
        rf"^{folder}: (free_frozen_page_commit|order_to_pindex)\(\)"
        rf"( \(mm/page_alloc\.c: line 1?\d\d\)(, called for free_frozen_page_commit\(\),)?)"
        rf"{somewhere} {what}, {STATE}"
    )


def simulate(release):
    return pm.simulate(release, "sapphire-rapids", pm.workload.page_fault1(2, pages=600_000),
                       **SIZES)  # fmt: skip


def freed(pages, n):
    for _ in range(n):
        pages.free()


@pytest.mark.parametrize("how", WRONG)
def test_a_simulation_says_which_function_did_what_and_when(wrong, how):
    folder, what = wrong(how)
    with pytest.raises(InputError, match=message(folder, what, how)):
        simulate(pm.tree(folder))
    assert simulate("v7.3").drains > 0  # and the process goes on


@pytest.mark.parametrize("how", ["endless", "zero", "null"])
def test_so_does_the_command_line(wrong, how):
    folder, what = wrong(how)
    sizes = [f"--set={k}={v}" for k, v in SIZES.items() if k == "high_min_pages"]
    done = CliRunner().invoke(
        main, ["simulate", "--release", str(folder), "--machine", "sapphire-rapids", "--workload",
               "page_fault1", "--processes", "2", "--param", "pages=600000", "--cpus", "2",
               "--memory-gib", "16", "--warmup", "0", "--seconds", "1", *sizes],
    )  # fmt: skip
    assert done.exit_code == 2
    assert "Traceback" not in done.output
    text = " ".join(done.output.split())
    assert folder.name in text
    assert what.replace("\\", "") in text
    assert "count 500000, high 500000" in text


@pytest.mark.parametrize("how", ["zero", "null"])
def test_so_do_pages_and_lists(wrong, how):
    folder, what = wrong(how)
    state = pm.release(pm.tree(folder))
    zone = Zone(1 << 20, batch=63, high_min=500_000, high_max=500_000)
    memory = Memory(state, [zone], 1)
    pfns = np.zeros(600_000, dtype=np.int64)
    memory.alloc_many(pfns)
    with pytest.raises(InputError, match=message(folder, what, how)):
        memory.free_many(pfns)
    assert memory.alloc() is not None  # what it left can be used
    lists = PerCpuPages(state, high_min=500_000, high_max=500_000)
    whole = TreePages(pm.tree(folder), high_min=500_000, high_max=500_000)
    for pages in (lists, whole):
        with pytest.raises(InputError, match=message(folder, what, how)):
            freed(pages, 600_000)


def test_each_thread_has_its_own(wrong):
    folder, _ = wrong("zero")
    tree = pm.tree(folder)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(simulate, r) for r in (tree, "v7.3", tree)]
    for run in (runs[0], runs[2]):
        assert isinstance(run.exception(), InputError)
    assert runs[1].result().drains > 0


def said(folder):
    try:
        simulate(pm.tree(folder))
    except InputError as error:
        return str(error)
    return ""


def test_a_forked_process_is_watched_too(wrong):
    folder, _ = wrong("endless")
    pm.release(pm.tree(folder))  # this thread is watched already
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert "comes to no end" in pool.apply_async(said, (folder,)).get(timeout=60)


def test_lists_that_are_never_empty(changed):
    folder = changed(
        ("	while (pcp->count)\n", f"	while (pcp->count && pcp->count != {BEYOND})\n")
    )
    lists = PerCpuPages(pm.release(pm.tree(folder)), high_min=500_000, high_max=500_000)
    freed(lists, BEYOND)
    with pytest.raises(InputError, match=r"drain_pages_zone\(\) drains 0 pages in a hold"):
        lists.drain_pages_zone()


def test_a_refill_of_nothing(changed):
    last = "	return n > 1 ?"
    folder = changed((last, "	if (least == 499999)\n		return 0;\n" + last))
    lists = PerCpuPages(pm.release(pm.tree(folder)), high_min=499_999, high_max=500_000)
    with pytest.raises(InputError, match=r"rmqueue_pcplist\(\) asks for 0 blocks in a refill"):
        lists.alloc()


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGFPE])
def test_signals_of_others_are_theirs(wrong, number):
    """Once a tree was used, a process still ends by a signal of its own."""
    folder, _ = wrong("zero")
    script = (
        "import os, pcpmodel as pm\n"
        f"pm.release(pm.tree({str(folder)!r})).rules\n"
        "from pcpmodel.kernel.pcp import PerCpuPages\n"
        f"PerCpuPages(pm.tree({str(folder)!r}), high=500).free()\n"
        f"os.kill(os.getpid(), {int(number)})\n"
    )
    # A sanitizer, where one runs, had them before, and would answer itself.
    sanitizer = f"{os.environ.get('ASAN_OPTIONS', '')}:handle_segv=0:handle_sigfpe=0"
    environment = os.environ | {"ASAN_OPTIONS": sanitizer}
    done = subprocess.run([sys.executable, "-c", script], env=environment, check=False)
    assert done.returncode == -number


#: Loads libraries whose threads have variables, sixteen a time, has its guard's tick come amid a
#: fork, and prints how many it survived.  The heap's lock is taken in a fork, which lasts as long
#: as there is much memory.
FORKS = """
import ctypes, os, re, subprocess, sys
from pathlib import Path

import pcpmodel as pm
from pcpmodel.kernel.pcp import PerCpuPages

folder, library, times = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])


def caught():
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"SigCgt:\\t(\\w+)", status)[1], 16)


before = caught() >> 33
tree = pm.tree(folder)
PerCpuPages(tree, high=500).free()
(tick,) = [i + 34 for i in range(31) if (caught() >> 33 & ~before) >> i & 1]
ballast = bytearray(b"x" * (200 << 20))
sender = subprocess.Popen(
    [sys.executable, "-c", f"import os\\nwhile os.read(0, 1): os.kill({os.getpid()}, {tick})"],
    stdin=subprocess.PIPE, bufsize=0,
)
sender.stdin.write(b"x")  # it runs now
loaded = []
for i in range(times):
    for k in range(16):
        copy = library.with_name(f"{i}-{k}.so")
        copy.write_bytes(library.read_bytes())
        loaded.append(ctypes.CDLL(copy))
    sender.stdin.write(b"x")
    if not (child := os.fork()):
        os._exit(0)
    os.waitpid(child, 0)
print(times, "forks")
sender.kill()
"""


def test_a_tick_amid_a_fork(wrong, tmp_path):
    """Where its thread's variables lie a signal handler must not ask the heap."""
    folder, _ = wrong("zero")
    source, library = tmp_path / "own.c", tmp_path / "own.so"
    source.write_text("__thread int own; int get(void) { return own++; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    command = [sys.executable, "-c", FORKS, str(folder), str(library), "24"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "24 forks\n", done.stderr

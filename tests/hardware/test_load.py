"""The load of the machine's own: it works, and it never outlives its owner."""

# SPDX-License-Identifier: GPL-2.0-only

import os
import subprocess
import sys
import time

import pytest

from pcpmodel.errors import InputError
from pcpmodel.hardware.load import Load

CPU = min(os.sched_getaffinity(0))


def test_a_load_says_what_it_did():
    with Load([(CPU, CPU)]) as load:
        (did,) = load.run(0.5, 256)
        (again,) = load.run(0.5, 256)
    assert did["pages"] >= 128
    assert did["wall_s"] >= 0.5
    assert 0 < again["cpu_s"] <= 1.5 * again["wall_s"]


def test_a_process_that_failed_is_said():
    with Load([(CPU, CPU)]) as load, pytest.raises(InputError, match="ended with 1"):
        load.run(0.05, -1)


def test_it_ends_with_a_killed_owner():
    owner = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from pcpmodel.hardware.load import Load\n"
            f"with Load([({CPU}, {CPU})]) as load:\n"
            "    print(load._running[0].pid, flush=True)\n"
            "    load.run(60, 512)\n",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    pid = int(owner.stdout.readline())
    owner.kill()
    owner.communicate()
    for _ in range(500):
        if not _runs(pid):
            break
        time.sleep(0.01)
    assert not _runs(pid)


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

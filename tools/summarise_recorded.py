"""Summarise recorded workloads into ``data/workload/``, a process at a time.

``python tools/summarise_recorded.py ../shared/traces`` reads the recordings at
native speed from there and the others from ``data/traces``; see
`pcpmodel.trace.processes`.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import sys
from pathlib import Path

from summarise_native import OUT, write

from pcpmodel.datasets.packages import load_workload
from pcpmodel.trace.ftrace import read_trace
from pcpmodel.trace.processes import Processes

#: Recorded at native speed -> file below the directory given.
NATIVE = {
    "native-build": "native-kbuild/trace.txt.gz",
    "native-unix": "native-streams/unix.trace.txt.gz",
    "native-tcp": "native-streams/tcp.trace.txt.gz",
}
#: Recorded in an emulated guest -> whose native time per page it takes.
EMULATED = {
    "6.1-unixpair": "native-unix",
    "6.12-build": "native-build",
    "6.12-mixed": "page_fault1",
    "6.12-tcp": "native-tcp",
    "6.12-thp": "page_fault1",
    "6.12-tmpfs": "page_fault1",
    "6.18-exitstorm": "page_fault1",
    "6.18-unixpair": "native-unix",
    "7.2-build": "native-build",
    "7.2-exitstorm": "page_fault1",
}


def summarise(name: str, path: Path, source: str, native_us: dict[str, float]) -> None:
    """Write the package of one recording."""
    # The native build was busy all the time; the others slept.
    recording = Processes(read_trace(path), None if name == "native-build" else 1_000_000)
    if name in NATIVE:
        native_us[name] = recording.page_us()
    like = EMULATED.get(name, name)
    speed = "at native speed" if name in NATIVE else f"in an emulated guest; time of {like}"
    write(
        name.replace(".", "-"),
        f"What each process of the recording {name} did with its pages",
        {
            "title": source,
            "note": f"Recorded {speed}.  kmem events; a page belongs to the process that "
            "allocated it, whoever freed it.",
        },
        recording.tables(native_us[like]),
    )


def native_rates() -> dict[str, float]:
    """CPU time per page of the recorded page_fault1 [us]."""
    rates = load_workload("native-kbuild").tables["rates"].set_index("parameter")["value"]
    return {"page_fault1": float(rates["fault_per_page"] + rates["unmap_per_page"]) / 1000}


def main() -> None:
    native_us = native_rates()
    for name, path in NATIVE.items():
        summarise(name, Path(sys.argv[1]) / path, path, native_us)
    for name in EMULATED:
        path = f"data/traces/{name}-4cpu/trace.txt.zst"
        summarise(name, OUT.parent / path, path, native_us)


if __name__ == "__main__":
    main()

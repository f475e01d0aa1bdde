"""Where a kernel puts pairs of processes, and which blocks SCTP takes: in emulated guests.

    python tools/emulated_streams.py OUT [--kernel linux-image-VERSION]

Writes ``data/workload/emulated-streams``.  Guests of two nodes with 16, 32 and 64 CPUs run an
eighth as many AF_UNIX pairs as CPUs, for 12 s, several times; a guest of two CPUs runs one SCTP
association and records it.  Needs what tools/emulated_guest.py needs, and an hour: an emulator of
many CPUs is slow.  Times mean nothing; where the scheduler puts a task, and which blocks a message
takes, hang little on them.
"""

# SPDX-License-Identifier: GPL-2.0-only

from __future__ import annotations

import argparse
import gzip
import subprocess
import tarfile
from collections import Counter
from pathlib import Path

import emulated_guest
import numpy as np
from emulated_guest import Apt, needed, newc, run, unpack
from summarise_native import write

from pcpmodel.trace.ftrace import read_trace

HERE = Path(__file__).resolve().parent / "guest"
SECONDS = 12
#: CPUs of a guest -> runs.
GUESTS = {16: 4, 32: 6, 64: 3}
SCTP_S = 20
INIT = """#!/bin/sh
P=/bin/busybox
$P mkdir -p /proc /sys /out
$P mount -t devtmpfs d /dev; $P mount -t proc p /proc; $P mount -t sysfs s /sys
$P mount -t tracefs t /sys/kernel/tracing; $P mount -t tmpfs t /out
echo 0 > /proc/sys/kernel/printk
for m in $($P cat /modules); do $P insmod /$m; done
$P ip link set lo up
{work}
$P tar cf /dev/vda -C /out .
$P sync
$P poweroff -f
"""
TRACE = """T=/sys/kernel/tracing
echo 200000 > $T/buffer_size_kb
for e in $T/events/kmem/mm_page_alloc $T/events/kmem/mm_page_free; do echo 1 > $e/enable; done
/bin/load sctp {seconds}
echo 0 > $T/tracing_on
$P cat $T/trace > /out/trace"""
PLACED = [
    ("cpus", "integer", "CPUs", "of the guest, half on each of two nodes"),
    ("pairs", "integer", "pairs", "that run"),
    ("run", "integer", "1", "number of the run"),
    ("tenth", "integer", "0.1 s", "since all began"),
    ("moved", "integer", "pairs", "whose sender is not on the node where most began"),
    ("apart", "integer", "pairs", "whose two processes are on different nodes"),
]
BLOCKS = [
    ("part", "integer", "1", "of the recording, a twelfth of its events each"),
    ("order", "integer", "1", "of the block"),
    ("side", "string", "", "whose CPU frees it: sender or receiver"),
    ("blocks", "number", "blocks", "freed for one of order 4"),
]
PARTS = 12


def boot(out: Path, kernel: Path, busybox: Path, cpus: int, nodes: int, work: str) -> Path:
    """Run a guest; the folder with what it wrote."""
    load, written, got = out / "load", out / "written.img", out / f"got-{cpus}"
    run("cc", "-O1", "-static", "-o", load, HERE / "streams.c")
    modules = needed(kernel)
    files = dict.fromkeys(("dev", "bin", "proc", "sys", "out"), (0o40755, b""))
    files["bin/busybox"] = (0o100755, busybox.read_bytes())
    files["bin/sh"] = (0o120777, b"busybox")
    files |= {f"{name}.ko": (0o100644, raw) for name, raw in modules.items()}
    files["modules"] = (0o100644, "\n".join(f"{name}.ko" for name in modules).encode())
    files["bin/load"] = (0o100755, load.read_bytes())
    files["init"] = (0o100755, INIT.format(work=work).encode())
    (out / "initramfs.gz").write_bytes(gzip.compress(newc(files), 1))
    with open(written, "wb") as file:
        file.truncate(512 << 20)
    command = [
        *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max,-la57", "-m", "2048"),
        *("-smp", f"{cpus},sockets={nodes},cores={cpus // nodes},threads=1"),
        *("-nographic", "-no-reboot", "-nic", "none", "-kernel", next(kernel.rglob("vmlinuz*"))),
        *("-initrd", out / "initramfs.gz", "-append", emulated_guest.APPEND),
        *("-drive", f"file={written},if=virtio,format=raw"),
    ]
    for node in range(nodes if nodes > 1 else 0):
        first, last = node * cpus // nodes, (node + 1) * cpus // nodes - 1
        command += ["-object", f"memory-backend-ram,id=m{node},size={2 // nodes}G"]
        command += ["-numa", f"node,nodeid={node},cpus={first}-{last},memdev=m{node}"]
    subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, check=True)
    with tarfile.open(written) as tar:
        tar.extractall(got, filter="data")
    return got


def placed(got: Path, cpus: int) -> list[tuple]:
    """Rows of all runs of a guest."""
    rows = []
    for path in sorted(got.glob("placed-*")):
        lines = [list(map(int, line.split())) for line in path.read_text().splitlines()]
        turned = 2 * lines[0][1] > lines[0][0]  # they began on the other node
        for tenth, (pairs, senders, _, apart) in enumerate(lines, 1):
            moved = pairs - senders if turned else senders
            rows.append((cpus, pairs, int(path.name.split("-")[1]), tenth, moved, apart))
    return rows


def blocks(got: Path) -> list[tuple]:
    """Blocks of order 2 and above that are freed, part by part."""
    events, _ = read_trace(got / "trace")
    rows = events.rows[events.is_event("mm_page_free") & (events.rows["b"] >= 2)]
    found = []
    for part, of_part in enumerate(np.array_split(rows, PARTS), 1):
        freed = Counter(
            (int(order), "receiver" if cpu else "sender")
            for order, cpu in zip(of_part["b"], of_part["cpu"], strict=True)
        )
        packets = freed[4, "receiver"]
        found += [(part, *key, round(n / packets, 2)) for key, n in sorted(freed.items())]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--kernel", default="linux-image-6.12.117+deb13-cloud-amd64")
    given = parser.parse_args()
    out = given.out.resolve()
    apt = Apt(out / "apt")
    kernel, root = out / given.kernel, out / "root"
    if not kernel.exists():
        unpack(apt.alone(given.kernel, out / "debs"), kernel)
    if not root.exists():
        unpack(apt.closure("busybox-static"), root)
    busybox = root / "usr/bin/busybox"
    rows = []
    for cpus, runs in GUESTS.items():
        load = f"/bin/load pairs {cpus // 8} {SECONDS} {cpus // 2}"
        work = f"for r in $($P seq {runs}); do {load} > /out/placed-$r; done"
        rows += placed(boot(out, kernel, busybox, cpus, 2, work), cpus)
    emulated_guest.MODULES = ("virtio_pci", "virtio_blk", "sctp")
    taken = blocks(boot(out, kernel, busybox, 2, 1, TRACE.format(seconds=SCTP_S)))
    write(
        "emulated-streams",
        "Where a kernel puts pairs of processes, and the blocks of an SCTP association",
        {
            "title": given.kernel,
            "note": "tools/emulated_streams.py: guests of two nodes, emulated; AF_UNIX pairs that "
            "are forked, sleep and begin at once; one SCTP association, messages of 10 KiB.",
        },
        {"placements": (PLACED, rows), "blocks": (BLOCKS, taken)},
    )


if __name__ == "__main__":
    main()

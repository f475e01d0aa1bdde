"""Copies of ``/proc/zoneinfo``: as recorded, edited, and made up."""

# SPDX-License-Identifier: GPL-2.0-only

from helpers.paths import TESTS
from pcpmodel.proc import zoneinfo

DATA = TESTS / "data" / "zoneinfo"


def one(name):
    return zoneinfo.read(DATA / name)[0]


def text_of(name):
    return (DATA / name).read_text()


def edited(name, old, new, count=1):
    text = text_of(name)
    assert text.count(old) >= count
    return text.replace(old, new, count)


def kernel_text(zones, cpus, stats=40, limits=True):
    """Text as v6.18 prints it; zones are (node, name, managed, low, boost, batch, lo, hi)."""
    lines, names = [], {}
    for zone in zones:
        names.setdefault(zone[0], []).append(zone[1])
    for node, name, managed, low, boost, batch, lo, hi in zones:
        lines.append(f"Node {node}, zone {name:>8}")
        if name == names[node][0]:
            lines += ["  per-node stats", *(f"      nr_stat_{i:<4} {i}" for i in range(stats))]
        lines.append("  pages free     0")
        marks = {"boost": boost, "min": low, "low": low, "high": low, "promo": low}
        marks |= {"spanned": managed, "present": managed, "managed": managed, "cma": 0}
        lines += [f"        {k:<8} {v}" for k, v in marks.items()]
        lines.append(f"        protection: ({', '.join('0' for _ in names[node])})")
        if not managed:
            continue
        lines += [f"      nr_zone_{i:<4} 0" for i in range(stats)]
        lines.append("  pagesets")
        for cpu in range(cpus):
            sizes = {"count": 0, "high": lo, "batch": batch}
            sizes |= {"high_min": lo, "high_max": hi} if limits else {}
            lines.append(f"    cpu: {cpu}")
            lines += [f"              {k + ':':<9} {v}" for k, v in sizes.items()]
            lines.append("  vm stats threshold: 6")
        lines += ["  node_unreclaimable:  0", "  start_pfn:           1"]
    return "\n".join(lines) + "\n"


PF1 = "6.1-pf1-4cpu.before"


NUMA = "7.2-numa2-4cpu.before"

"""Output of tracers, and what `pcpmodel data add latency` makes of it."""

# SPDX-License-Identifier: GPL-2.0-only

import random

from click.testing import CliRunner

from helpers.paths import DATA
from pcpmodel.cli import main

FREE, ALLOC = "free_pcppages_bulk_locked", "rmqueue_bulk_locked"


HEADER = "# tracer: function_graph\n#\n# CPU  DURATION                  FUNCTION CALLS\n"


def holds(mean_us=2.5, n=600, seed=1):
    """Durations as function_graph prints them [us]."""
    rng = random.Random(seed)
    return [round(mean_us * rng.lognormvariate(0, 0.3), 3) for _ in range(n)]


def leaves(name, durations):
    return HEADER + "".join(f" {i % 4})   {d:.3f} us    |  {name}();\n"
                            for i, d in enumerate(durations))  # fmt: skip


def write(tmp_path, text, name="trace.txt"):
    path = tmp_path / name
    path.write_text(text)
    return path


def log2_counts(values_ns):
    """Bucket index -> count; bucket i holds values of i binary digits."""
    counts = {}
    for value in values_ns:
        counts[int(value).bit_length()] = counts.get(int(value).bit_length(), 0) + 1
    return counts


def funclatency(values_ns, unit="nsecs", average=True):
    scale = {"nsecs": 1, "usecs": 1000}[unit]
    counts = log2_counts([v // scale for v in values_ns])
    lines = ["Tracing 1 functions for \"x\"... Hit Ctrl-C to end.", "^C", "",
             f"     {unit:19} : count     distribution"]  # fmt: skip
    for i in range(1, max(counts) + 1):
        count = counts.get(i, 0) + (counts.get(0, 0) if i == 1 else 0)
        low = 0 if i == 1 else 1 << i - 1
        lines.append(f"{low:10} -> {(1 << i) - 1:<10} : {count:<8} |{'*' * 3:40}|")
    if average:
        total = sum(values_ns) // scale
        lines += ["", f"avg = {total // len(values_ns)} {unit}, total: {total} {unit}, "
                  f"count: {len(values_ns)}"]  # fmt: skip
    return "\n".join([*lines, "", "Detaching...", ""])


def si(value):
    for shift, suffix in ((30, "G"), (20, "M"), (10, "K")):
        if value >= 1 << shift:
            return f"{value >> shift}{suffix}"
    return str(value)


def bpftrace(values, name="@ns"):
    counts = log2_counts(values)
    lines = ["Attaching 2 probes...", "", f"{name}:"]
    for i in range(min(counts), max(counts) + 1):
        low = 0 if i == 0 else 1 << i - 1
        edges = f"[{low}]" if i < 2 else f"[{si(low)}, {si(low * 2)})"
        lines.append(f"{edges:16} {counts.get(i, 0):>8} |{'@' * 3:52}|")
    return "\n".join([*lines, "", ""])


NS = [round(v * 1000) for v in holds(20.0, 5000)]


def add(root, *arguments):
    command = ["data", "add", "latency", "--data", str(root), *map(str, arguments), "--json"]
    return CliRunner().invoke(main, command)


def raw_options(tmp_path, batches=(63, 127, 255, 511)):
    options = []
    for batch in batches:
        for side, name in (("free", FREE), ("alloc", ALLOC)):
            path = write(tmp_path, leaves(name, holds(batch * 0.04)), f"{side}-{batch}.txt")
            options += [f"--{side}", f"{batch}={path}"]
    return options


SPR = DATA / "hardware" / "sapphire-rapids" / "batch_latency.csv"

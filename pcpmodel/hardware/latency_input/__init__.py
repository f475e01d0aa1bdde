"""What a tool printed -> the batch latency table of a machine; one reader for each tool.

Of holds three kinds of text are read, one file per batch setting and side: ftrace
``function_graph`` (`pcpmodel.hardware.latency_input.function_graph`), ``funclatency`` of bcc or
libbpf-tools (`pcpmodel.hardware.latency_input.funclatency`) and bpftrace ``hist()`` or ``lhist()``
(`pcpmodel.hardware.latency_input.bpftrace`), whose maps may be keyed by pages: one file, every
batch.  All three time a function as a whole, the wait for the lock in it.  Waits alone come from
lock contention events (`pcpmodel.hardware.latency_input.contention`) or their sums
(`pcpmodel.hardware.latency_input.lock_table`) and are kept apart.  A reader takes line after line
and gives what each function took; mean, 99th percentile and their intervals are the same for all
(`pcpmodel.hardware.latency_input.estimates`).
"""

# SPDX-License-Identifier: GPL-2.0-only

from pcpmodel.hardware.latency_input.add import Added, add_latency, add_waits
from pcpmodel.hardware.latency_input.estimates import MIN_SAMPLES, Estimate
from pcpmodel.hardware.latency_input.raw import MAX_RAW_BYTES, read_by_pages, read_raw
from pcpmodel.hardware.latency_input.scripts import SCRIPTS
from pcpmodel.hardware.latency_input.waits import Wait, read_waits

__all__ = [
    "MAX_RAW_BYTES",
    "MIN_SAMPLES",
    "SCRIPTS",
    "Added",
    "Estimate",
    "Wait",
    "add_latency",
    "add_waits",
    "read_by_pages",
    "read_raw",
    "read_waits",
]

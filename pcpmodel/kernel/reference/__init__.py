"""The slow twin: ``mm/page_alloc.c`` one page at a time, in plain Python.

Written from the kernel's behaviour with nothing in mind but being obvious; the
compiled core must agree with it on any sequence of operations.  Lists are
Python lists whose head is element 0.  Same names as the core, file by file.

Core and twin share `pcpmodel.kernel.zone`, and what both take from there
neither can check by the other: `managed_pages`, `zonelists`, and `Pagesets` with
the sizes of `pcpmodel.kernel.sizing`.  Worked examples do (`tests/kernel/test_pagesets.py`,
`tests/kernel/test_sizing.py`).  That nodes are as far apart as their numbers
(`zonelists`) is the model's own choice, which nothing checks.
"""

# SPDX-License-Identifier: GPL-2.0-only

from pcpmodel.kernel.reference.memory import Memory
from pcpmodel.kernel.reference.pcp import PerCpuPages

__all__ = ["Memory", "PerCpuPages"]

# cython: auto_pickle=False, autotestdict=False
"""A policy of the user's, asked at every decision of a recorded kernel.

What it would do in the state that the kernel was in; what that would have led to is for `what_if`.
"""

# SPDX-License-Identifier: GPL-2.0-only

from pcpmodel.kernel.pcp cimport (
    decide_alloc, decide_decay, decide_free, decide_free_high, decide_high, pcp_commit,
)
from pcpmodel.trace.arrays cimport has_room

import numpy as np

__all__ = ["DECISION"]

#: `Exactness.decisions`: line of the trace, "refill" [blocks] or "drain" [pages], whose lists, and
#: what kernel and policy made of the same state: blocks or pages, and ``high`` afterwards [pages].
DECISION = np.dtype([("line", "i8"), ("kind", "U6"), ("node", "i4"), ("zone", "U8"), ("cpu", "i4"),
                     ("kernel", "i4"), ("policy", "i4"), ("kernel_high", "i4"),
                     ("policy_high", "i4")])


cdef void ask(
    interview *w, const pcp_rules *r, int kind, int x, int64_t line, unsigned int flags, int order,
    per_cpu_pages mine, int kernel, int kernel_high
) noexcept nogil:
    """What the policy does where the kernel refilled *kernel* blocks, or drained so many pages.

    *mine*: the pageset before that.  What moves no pages, neither the kernel's nor the policy's, is
    not noted.
    """
    cdef policy_state *of = &w.of[x]
    cdef bint free_high, work
    cdef int high, n = 0
    if kind == ASKED_REFILL:
        n = decide_alloc(of, &mine, r, flags, order)
    elif kind == ASKED_TICK:
        n = decide_decay(of, &mine, r, flags, &work)
    else:
        free_high = decide_free_high(of, &mine, r, flags, order, pcp_commit(&mine, r, order))
        high = decide_high(of, &mine, r, flags, order, free_high)
        if mine.count >= high:
            n = min(decide_free(of, &mine, r, flags, order, free_high, high), mine.count)
        kernel = min(kernel, mine.count)
    of.holds += kernel > 0
    if of.error:
        # Nobody else may be asked: its exception waits.
        w.failed = of
        w.on = False
        return
    if kernel == 0 and n == 0:
        return
    if not has_room(<void **>&w.rows, &w.cap, w.nr + 1, sizeof(decision)):
        w.broken = True
        return
    w.rows[w.nr] = decision(line, kind, x, kernel, n, kernel_high, mine.high)
    w.nr += 1


cdef object decisions_of(const interview *w, int cpus, zones):
    """Records of `DECISION`; *zones*: (name, node) of each."""
    if w.broken:
        raise MemoryError
    told = np.empty(w.nr, DECISION)
    if not w.nr:
        return told
    raw = np.asarray(<decision[:w.nr]>w.rows)
    for name in ("line", "kernel", "policy", "kernel_high", "policy_high"):
        told[name] = raw[name]
    told["kind"] = np.where(raw["kind"] == ASKED_REFILL, "refill", "drain")
    zone, told["cpu"] = np.divmod(raw["set"], cpus)
    told["zone"] = np.array([name for name, _ in zones])[zone]
    told["node"] = np.array([node for _, node in zones])[zone]
    return told

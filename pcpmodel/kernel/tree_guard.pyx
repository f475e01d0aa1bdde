"""What a function of a kernel tree did wrong: which, where, in what state."""

# SPDX-License-Identifier: GPL-2.0-only

import re
import shutil
import signal
import subprocess

from pcpmodel.errors import InputError
from pcpmodel.kernel.zone import flags_set

cdef extern from "tree_guard.h":
    enum:
        TREE_SIGNALLED
        TREE_ENDLESS
        TREE_ASKS
        TREE_DRAINS
        MOST_TICKS

    tree_call *call_of_thread() noexcept nogil
    const char *library_at(const void *pc, size_t *offset) noexcept nogil


SIGNALS = {
    signal.SIGFPE: "divides by zero",
    signal.SIGSEGV: "touches what is not mapped",
    signal.SIGBUS: "touches what is not mapped",
    # A check of the compiler's; which signal depends on the processor.
    signal.SIGILL: "goes beyond an array",
    signal.SIGTRAP: "goes beyond an array",
}
ALWAYS = ("count", "high", "high_min", "high_max", "batch")

# Names of trees by the addresses of what was loaded of them.
cdef dict NAMES = {}


cdef tree_call *this_call() noexcept nogil:
    return call_of_thread()


cdef void known(const void *of, str name) noexcept:
    NAMES[<size_t>of] = name


cdef int tell_failed() except -1:
    cdef tree_call *call = call_of_thread()
    cdef int failed = call.failed
    cdef size_t offset = 0
    cdef const char *library
    if not failed:
        return 0
    call.failed = 0
    if failed == TREE_SIGNALLED:
        what = f"{SIGNALS[call.answer]} ({signal.Signals(call.answer).name})"
    elif failed == TREE_ENDLESS:
        what = f"comes to no end within {MOST_TICKS} s"
    elif failed == TREE_ASKS:
        what = f"asks for {call.answer} blocks in a refill"
    else:
        what = f"drains {call.answer} pages in a hold of a list that has to be drained"
    called = who = f"{call.function.decode()}()"
    library = library_at(call.pc, &offset)
    if library != NULL:
        who = line_at(library.decode(errors="surrogateescape"), offset) or called
    if not who.startswith(called):
        who = f"{who}, called for {called},"
    raise InputError(f"{NAMES.get(<size_t>call.of, 'tree')}: {who} {what}, {state_of(call)}")


cdef str state_of(const tree_call *call):
    """The state that it was called in; empty fields that not every kernel has are left out."""
    fields = dict(call.state)
    told = [f"{k} {v}" for k, v in fields.items() if v or k in ALWAYS]
    if not any(fields.values()):  # of sizing, and which list a block goes to
        told = []
    if call.order:
        told.append(f"order {call.order}")
    told += flags_set(call.zone_flags)
    return f"where {', '.join(told)}" if told else "whatever the state"


def line_at(library, offset):
    """"FUNCTION() (FILE: line N)" of an offset into what was compiled, if that can be said."""
    tool = shutil.which("addr2line")  # comes with the compiler
    if tool is None:
        return ""
    try:
        done = subprocess.run(
            [tool, "-f", "-i", "-e", library, hex(offset)], capture_output=True, text=True,
            errors="replace", stdin=subprocess.DEVNULL, timeout=10, check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = done.stdout.splitlines()
    for function, at in zip(lines[::2], lines[1::2]):  # innermost first; ours lie around theirs
        file = re.search(r"((?:mm|include/linux)/\w+\.[ch]):(\d+)", at)
        if file:
            return f"{function}() ({file[1]}: line {file[2]})"
    return ""

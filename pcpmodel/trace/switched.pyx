# cython: auto_pickle=False, autotestdict=False, boundscheck=False, wraparound=False
"""Whose a line is, as sched_switch tells.

A task that gets a CPU and writes no line of its own is hidden; what is freed while a task gets the
CPU is not for that task; and a task that lost a CPU may have taken there what it tells of on
another one.  Rows are looked at once, and little is kept but by task: a long trace lies in a file.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t

from pcpmodel.kernel.pages cimport pages_unlikely
from pcpmodel.trace.events cimport *
from pcpmodel.trace.page_lists cimport (
    IRQ, MAX_PID, all_rows, by_row, check_cpu, cpu_of_switch, is_heeded, leave_rows, rows_of,
    untouched,
)

import numpy as np


# -- in place -------------------------------------------------------------------------

cdef inline bint goes_on(const event_row *freed, const event_row *r) noexcept nogil:
    """Whether the next line of a CPU is another free like *freed*, or of what that leads to."""
    cdef int e = r.event & (EV_HIT - 1)     # a probe without a pageset's fields is a hit
    if r.pid != freed.pid:
        return False
    if e == EV_PAGE_COMMIT or e == EV_FREE_ONE_PAGE or e == EV_FREE_PCPPAGES_BULK \
            or e == EV_PCPU_DRAIN:
        return r.flags & IRQ == freed.flags & IRQ
    return r.event == freed.event and (r.flags ^ freed.flags) & (IRQ | FL_DEPTH) == 0


cdef void give_to_idle(event_row *rows, int32_t row, int32_t last) noexcept nogil:
    """The lines of a CPU from *row* to *last* are the idle task's."""
    cdef int cpu = rows[row].cpu
    while row <= last:
        if rows[row].cpu == cpu:
            rows[row].pid = 0
        row += 1


cdef inline void goes_to_sleep(event_row *last, const event_row *r) noexcept nogil:
    """A task that gives up its CPU is done with what its last line was about."""
    if last.event == EV_FREE and last.cpu == r.cpu:
        last.d = True


cdef int32_t hand_over_all(const all_rows *s, event_row *rows, int cpus, int32_t *of_cpu,
                           const uint8_t *own, int32_t *of_task, int32_t *hidden) noexcept nogil:
    """Go through all rows, and say how many are of hidden tasks.

    ``of_cpu``: 1 + the last switch of each CPU, the first and the last of the frees at hand, and
    the line before, if it is a switch.  ``of_task``: 1 + the last row of each.
    """
    cdef int32_t row, cpu, n = 0
    cdef int32_t *at
    cdef event_row *r
    cdef bint switched
    for row in range(s.n):
        leave_rows(s, row, 1)
        r = &rows[row]
        at = of_cpu + 4 * r.cpu
        if pages_unlikely(at[1]):
            if goes_on(&rows[at[1] - 1], r):
                at[2] = row + 1
                continue
            # What is freed in a batch is the task's own.
            if r.event != EV_FREE_BATCHED:
                give_to_idle(rows, at[1] - 1, at[2] - 1)
            at[1] = 0
        switched = at[3] and rows[at[3] - 1].a == r.pid
        at[3] = 0
        if r.event == EV_SWITCH:
            at[3] = row + 1
            if 0 < r.pid < MAX_PID and of_task[r.pid] and not r.b:
                goes_to_sleep(&rows[of_task[r.pid] - 1], r)
            r.c, r.pid, r.flags = r.pid, 0, 0
            if at[0] != row + 1 and r.a > 0 and (r.a >= MAX_PID or not own[r.a]):
                r.pid = <int32_t>min(r.a, <int64_t>INT32_MAX)
                hidden[n] = row
                n += 1
        elif 0 < r.pid < MAX_PID and not r.flags & IRQ:
            of_task[r.pid] = row + 1
        if pages_unlikely(switched) and r.event == EV_FREE \
                and r.flags & (IRQ | FL_DEPTH) == 1:
            at[1] = at[2] = row + 1
    for cpu in range(cpus):
        at = of_cpu + 4 * cpu
        if at[1]:
            give_to_idle(rows, at[1] - 1, at[2] - 1)
    return n


def hand_over(events, int cpus):
    """Make each row of sched_switch that of who gets the CPU, in place, once.

    The line itself is of who loses the CPU, which is in column ``c`` afterwards; the task of its
    row is a hidden one, or none.  A task was switched away from again, if nowhere else, with a line
    of its own, unless the tracer was told to pass it over (set_event_notrace_pid).  Who gives the
    CPU up is done with the page that it freed last: column ``d`` of that row says so.

    With its last reference a memory map goes: finish_task_switch() has __mmdrop() free the page
    directory with preemption off, before the task that gets the CPU goes on where it was stopped,
    which may be in an allocation and on another CPU (every release).  Such frees are the idle
    task's from here on, and so are the drains that they lead to.

    Parameters
    ----------
    events : Events
    cpus : int

    Raises
    ------
    InputError
        A row of another CPU.
    ValueError
        The rows cannot be written.
    """
    cdef list keep = []
    cdef all_rows s = rows_of(events, keep)
    cdef int32_t *of_cpu = <int32_t *>untouched(4 * cpus * sizeof(int32_t), keep)
    cdef uint8_t *own = <uint8_t *>untouched(MAX_PID, keep)
    cdef int32_t *of_task = <int32_t *>untouched(MAX_PID * sizeof(int32_t), keep)
    cdef int32_t row, n = 0
    cdef uint8_t[::1] raw
    cdef int32_t[::1] hidden
    cdef const event_row *r
    if not events.is_event("sched_switch").any():
        return
    raw = events.rows.view(np.uint8)
    with nogil:
        for row in range(s.n):
            leave_rows(&s, row, 1)
            r = &s.rows[row]
            check_cpu(r, cpus)
            if not r.flags & IRQ and 0 <= r.pid < MAX_PID:  # interrupts above it are shown
                own[r.pid] = 1
            if r.event == EV_SWITCH:
                of_cpu[4 * r.cpu] = row + 1
                n += 1
    hidden = np.empty(n, np.int32)
    with nogil:
        n = hand_over_all(&s, <event_row *>&raw[0], cpus, of_cpu, own, of_task, &hidden[0])
    events.turn_into(np.asarray(hidden)[:n], EV_HIDDEN)


# -- by task --------------------------------------------------------------------------

def switches(events):
    """Of each sched_switch that was handed over who leaves the CPU, and who gets it.

    Parameters
    ----------
    events : Events

    Returns
    -------
    (N,) ndarray of int64
        ``task << 32 | row``, ascending; `cpu_of_switch` tells the CPU.
    """
    cdef list keep = []
    cdef all_rows s = rows_of(events, keep)
    cdef int64_t *found = <int64_t *>by_row(&s, 2 * sizeof(int64_t), keep)
    cdef int32_t row
    cdef int64_t n = 0
    cdef const event_row *r
    with nogil:
        for row in range(s.n):
            leave_rows(&s, row, 1)
            r = &s.rows[row]
            if r.event != EV_SWITCH and r.event != EV_HIDDEN:
                continue
            # Each CPU has an idle task of its own.
            if 0 < r.c < MAX_PID:
                found[n] = r.c << 32 | row
                n += 1
            if 0 < r.a < MAX_PID:
                found[n] = r.a << 32 | row
                n += 1
    return np.sort(np.asarray(<int64_t[:n]>found) if n else np.empty(0, np.int64))


def untold(events, int cpus):
    """Rows before which a task that writes no line had the CPU, though no sched_switch says so.

    One of a task that has a CPU though none gave it: where some tasks are hidden an idle task may
    be one of them, and writes neither that nor what it takes and gives back, such as the page
    directory of the task that it got the CPU from.  And that with which a hidden task loses it, if
    interrupts came in between: it goes on after them, and may take what they brought to the lists.

    Parameters
    ----------
    events : Events
        As `hand_over` left them.
    cpus : int

    Returns
    -------
    (N, 3) ndarray of int32
        Ascending: the row, the one that shows it, and that since which it had the CPU: the last one
        of the CPU and the last one of that whose task is told, or twice that which gave it the
        hidden task.  None where no task is hidden.
    """
    cdef list keep = []
    cdef all_rows s = rows_of(events, keep)
    cdef int64_t *task = <int64_t *>untouched(cpus * sizeof(int64_t), keep)  # 1 + it; 0 not known
    cdef int32_t *last = <int32_t *>untouched(cpus * sizeof(int32_t), keep)
    cdef int32_t *busy = <int32_t *>untouched(cpus * sizeof(int32_t), keep)
    cdef int32_t *got = <int32_t *>untouched(cpus * sizeof(int32_t), keep)  # of a hidden task
    cdef int32_t *found = <int32_t *>by_row(&s, 3 * sizeof(int32_t), keep)
    cdef int32_t row, since
    cdef int64_t n = 0, now
    cdef const event_row *r
    cdef bint told
    if not (events.rows["event"] == EV_HIDDEN).any():
        return np.empty((0, 3), np.int32)
    with nogil:
        for row in range(s.n):
            leave_rows(&s, row, 1)
            r = &s.rows[row]
            check_cpu(r, cpus)
            told = r.event == EV_SWITCH or r.event == EV_HIDDEN
            now = r.c if told else r.pid
            since = got[r.cpu] if got[r.cpu] < last[r.cpu] else 0
            if (task[r.cpu] and now and task[r.cpu] != now + 1) \
                    or (since and now and not r.flags & IRQ):
                found[n] = row
                found[n + 1], found[n + 2] = since or last[r.cpu], since or busy[r.cpu]
                n += 3
            if told or (now and not r.flags & IRQ):
                got[r.cpu] = row if r.event == EV_HIDDEN else 0
            last[r.cpu] = row
            if now:
                busy[r.cpu] = row
            # Without an interrupt it may be a free that was given to the idle task.
            if told or now or r.flags & IRQ:
                task[r.cpu] = 1 + (r.a if told else now)
    rows = np.asarray(<int32_t[:n]>found).copy() if n else np.empty(0, np.int32)
    return rows.reshape(-1, 3)


# An mm_page_alloc of a page of which no line told before, and the row before of its task, or -1.
cdef struct first_told:
    int32_t row
    int32_t before


cdef int64_t see_first_told(const all_rows *s, int32_t first, uint64_t unheeded, int64_t base,
                            int64_t pages, int32_t *last, uint8_t *seen,
                            first_told *found) noexcept nogil:
    """How many were found from row *first* on; ``last``: 1 + row, by task."""
    cdef int32_t row
    cdef int64_t p, n = 0
    cdef const event_row *r
    cdef bint own, told
    for row in range(s.n):
        leave_rows(s, row, 1)
        r = &s.rows[row]
        own = is_heeded(unheeded, r.event) and not r.flags & IRQ and 0 <= r.pid < MAX_PID
        p = r.a - base
        if EV_ALLOC <= r.event <= EV_EXTFRAG and 0 <= p < pages:
            told = seen[p]
            seen[p] = 1
            if not told and own and r.event == EV_ALLOC and row >= first:
                found[n] = first_told(row, last[r.pid] - 1)
                n += 1
        if own:
            last[r.pid] = row + 1
    return n


cdef list places_before(const all_rows *s, const int64_t[::1] keys, Py_ssize_t k,
                        const first_told *one):
    """(row, row with which its task lost a CPU, that CPU), from the last such CPU back.

    ``k``: place of the last switch of the task before.
    """
    cdef list found = []
    cdef set seen = {s.rows[one.row].cpu}
    cdef int64_t task = s.rows[one.row].pid
    cdef int32_t got, left
    while k > 0 and keys[k - 1] >> 32 == task:
        got, left = <int32_t>keys[k], <int32_t>keys[k - 1]
        cpu = ~cpu_of_switch(&s.rows[left], task)
        if cpu_of_switch(&s.rows[got], task) < 0 or cpu < 0 or left <= one.before \
                or s.rows[left].b <= 0:     # it slept, or ended
            break
        if cpu not in seen:
            found.append((one.row, left, cpu))
            seen.add(cpu)
        k -= 2
    return found


def taken_on_the_way(events, switched, int32_t first, uint64_t unheeded, int64_t base,
                     int64_t pages):
    """Pages that their tasks may have taken on another CPU than on that which they tell of it.

    No line told of the page before, and since its last line the task was stopped, ready to go on,
    and moved.

    Parameters
    ----------
    events : Events
    switched : (N,) ndarray of int64
        As of `switches`.
    first : int
        Row from which on lists are followed.
    unheeded : int
        As of `Follower`.
    base, pages : int
        The machine's page frames.

    Returns
    -------
    list of (int, int, int)
        Row of the mm_page_alloc, row with which the task lost the CPU, that CPU.
    """
    cdef list keep = []
    cdef all_rows s = rows_of(events, keep)
    cdef const int64_t[::1] keys = switched
    cdef int32_t *last = <int32_t *>untouched(MAX_PID * sizeof(int32_t), keep)
    cdef uint8_t *seen = <uint8_t *>untouched(pages, keep)
    cdef first_told *told = <first_told *>by_row(&s, sizeof(first_told), keep)
    cdef int64_t n, j
    cdef Py_ssize_t k
    found = []
    with nogil:
        n = see_first_told(&s, first, unheeded, base, pages, last, seen, told)
    if not n or not len(switched):
        return found
    rows = np.asarray(<int32_t[:n, :2]><int32_t *>told)[:, 0]
    own = events.rows["pid"].take(rows).astype(np.int64) << 32 | rows
    for j, k in enumerate((np.searchsorted(switched, own, "right") - 1).tolist()):
        if k > 0 and keys[k] >> 32 == s.rows[told[j].row].pid \
                and <int32_t>keys[k] > told[j].before:
            found += places_before(&s, keys, k, &told[j])
    return found

"""Reader of the text that ftrace, ``trace-cmd report`` and ``perf script`` print.

One pass, no Python object per line: `memchr` finds the line ends, the six kmem
tracepoints are read field by field in the order the kernel prints them, and
everything rarer goes through a ``key=value`` reader.  A file is read in pieces,
so memory does not grow with it.

The text may come from a stranger.  Every number is range-checked, every access
stays inside the line, the expansion of a compressed file is limited, and a line
that is not understood is an error with its number.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int64_t, uint16_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from pcpmodel.exclusive cimport Exclusive, begin_use, check_idle, end_use
from pcpmodel.trace.events cimport *

import mmap
import tempfile
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pcpmodel.errors import InputError
from pcpmodel.files import open_stream

__all__ = ["EVENT", "EVENT_IDS", "FLAGS", "HIT", "PROBE_COLUMNS", "ZONES", "Events", "TraceReader",
           "open_text", "read_trace"]

#: One event; the columns are fields of this record (see `Events`).
EVENT = np.dtype(
    [("time", "i8"), ("line", "i8"), ("a", "i8"), ("b", "i8"), ("c", "i8"), ("d", "i8"),
     ("pid", "i4"), ("probe", "i4"), ("comm", "u2"), ("flags", "u2"), ("cpu", "u2"),
     ("event", "u2")]
)
if EVENT.itemsize != sizeof(event_row):
    raise ImportError("trace/ftrace and trace/events.pxd disagree; run: make env")

#: Columns of `Events.probes`; -1 where the probe did not print the field.
PROBE_COLUMNS = (
    "n", "pindex", "pcp", "zone", "node", "zone_flags", "nr_free", "count", "high", "batch",
    "high_min", "high_max", "alloc_factor", "free_count", "flags", "free_factor",
)
#: Zone names in probe events; the index is what the ``zone`` column holds.
ZONES = ("DMA", "DMA32", "Normal", "HighMem", "Movable", "Device")
#: Added to the id of a function for a hit of the function tracer.
HIT = EV_HIT
#: Bits of the ``flags`` column; its low four bits are the preempt depth.
FLAGS = {
    "irqs_off": FL_IRQS_OFF, "bh_off": FL_BH_OFF, "need_resched": FL_NEED_RESCHED,
    "resched_lazy": FL_RESCHED_LAZY, "hardirq": FL_HARDIRQ, "softirq": FL_SOFTIRQ,
    "nmi": FL_NMI, "migrate_disabled": FL_MIGRATE_DISABLED, "known": FL_KNOWN,
}

DEF_EVENTS = (
    (b"mm_page_alloc", EV_ALLOC), (b"mm_page_free", EV_FREE),
    (b"mm_page_free_batched", EV_FREE_BATCHED), (b"mm_page_alloc_zone_locked", EV_ZONE_LOCKED),
    (b"mm_page_pcpu_drain", EV_PCPU_DRAIN), (b"mm_page_alloc_extfrag", EV_EXTFRAG),
    (b"tracing_mark_write", EV_MARKER), (b"free_pcppages_bulk", EV_FREE_PCPPAGES_BULK),
    (b"drain_pages_zone", EV_DRAIN_PAGES_ZONE), (b"drain_zone_pages", EV_DRAIN_ZONE_PAGES),
    (b"decay_pcp_high", EV_DECAY_PCP_HIGH), (b"free_one_page", EV_FREE_ONE_PAGE),
    (b"alloc_pages_bulk", EV_ALLOC_PAGES_BULK), (b"alloc_pages_bulk_ret", EV_ALLOC_PAGES_BULK_RET),
    (b"alloc_pages_bulk_noprof", EV_ALLOC_PAGES_BULK), (b"__alloc_pages_bulk", EV_ALLOC_PAGES_BULK),
    (b"free_prepared_contig_range", EV_FREE_CONTIG), (b"page_commit", EV_PAGE_COMMIT),
    (b"rmqueue_bulk", EV_RMQUEUE_BULK), (b"set_pageblock_migratetype", EV_SET_BLOCK_TYPE),
    (b"refresh_cpu_vm_stats", EV_REFRESH_CPU_VM_STATS),
    (b"drain_local_pages", EV_DRAIN_LOCAL_PAGES), (b"drain_all_pages", EV_DRAIN_ALL_PAGES),
    (b"__drain_all_pages", EV_DRAIN_ALL_PAGES_INNER),
    (b"zone_pcp_disable", EV_ZONE_PCP_DISABLE), (b"zone_pcp_enable", EV_ZONE_PCP_ENABLE),
    (b"zone_set_pageset_high_and_batch", EV_SET_PAGESET),
    (b"__zone_set_pageset_high_and_batch", EV_SET_PAGESET_INNER),
    (b"setup_per_zone_wmarks", EV_SETUP_WMARKS), (b"__free_pages_ok", EV_FREE_PAGES_OK),
    (b"unreserve_highatomic_pageblock", EV_UNRESERVE_HIGHATOMIC),
    (b"workqueue_execute_start", EV_WORK_START), (b"workqueue_execute_end", EV_WORK_END),
    (b"sched_process_fork", EV_FORK), (b"sched_process_exec", EV_EXEC),
    (b"sched_process_exit", EV_EXIT), (b"mm_vmscan_kswapd_wake", EV_KSWAPD_WAKE),
    (b"mm_vmscan_kswapd_sleep", EV_KSWAPD_SLEEP),
    (b"mm_vmscan_direct_reclaim_begin", EV_RECLAIM_BEGIN),
    (b"mm_vmscan_direct_reclaim_end", EV_RECLAIM_END),
)
#: Event name -> id in the ``event`` column (the first name of an id is its usual one).
EVENT_IDS = {name.decode(): number for name, number in DEF_EVENTS}

cdef enum:
    NAMES = 40
    MAX_NAME = 40
    KEYS = 37
    MAX_KEY = 20
    COMM_SLOTS = 1 << 17
    MAX_COMMS = 65535       # the last id stands for every later name
    MAX_MARKERS = 4096      # per block
    MAX_ORDER_READ = 10     # MAX_PAGE_ORDER
    MAX_TYPE_READ = 7
    MAX_CPU = 65535
    MAX_LINE = 1 << 16

# Why a line was refused; texts in _WHY.
cdef enum:
    OK = 0
    BLANK = 1               # nothing to record: comment, heading, event we do not follow
    BAD_HEAD = -1
    BAD_CPU = -2
    BAD_TIME = -3
    BAD_FIELD = -4
    BAD_PFN = -5
    BAD_ORDER = -6
    BAD_TYPE = -7
    BAD_NUMBER = -8
    BAD_PID = -9
    BAD_NUL = -10
    FULL = 2

_WHY = {
    BAD_HEAD: "not a trace line; expected 'TASK-PID [CPU] flags seconds: event: fields'",
    BAD_CPU: f"CPU number outside 0..{MAX_CPU}",
    BAD_TIME: "time stamp is not 'seconds.fraction:' or a count below 2^63",
    BAD_FIELD: "a field of this event is missing or unreadable",
    BAD_PFN: "pfn outside 0..2^40",
    BAD_ORDER: f"order outside 0..{MAX_ORDER_READ}",
    BAD_TYPE: f"migratetype outside 0..{MAX_TYPE_READ}",
    BAD_NUMBER: "a number does not fit 64 bits",
    BAD_PID: "process number outside 0..2^31",
    BAD_NUL: "the file is not text",
}

# Keys of key=value fields.
cdef enum:
    K_PFN, K_ORDER, K_MT, K_REFILL, K_AORDER, K_FORDER, K_BORDER, K_AMT, K_FMT, K_FRAG, K_OWN
    K_N, K_PINDEX, K_PCP, K_ZONE, K_NODE, K_ZFL, K_FREE, K_COUNT, K_HIGH, K_BATCH, K_HMIN
    K_HMAX, K_AF, K_FF, K_FC, K_PFL, K_OFCPU, K_PAGE, K_NR, K_GFP, K_NID, K_LIST, K_SMT
    K_CHILD, K_PID, K_RECLAIMED

DEF_KEYS = (
    b"pfn", b"order", b"migratetype", b"percpu_refill", b"alloc_order", b"fallback_order",
    b"pageblock_order", b"alloc_migratetype", b"fallback_migratetype", b"fragmenting",
    b"change_ownership", b"n", b"pindex", b"pcp", b"zone", b"node", b"zfl", b"free", b"count",
    b"high", b"batch", b"hmin", b"hmax", b"af", b"ff", b"fc", b"pfl", b"of_cpu", b"page", b"nr",
    b"gfp", b"nid", b"list", b"mt", b"child_pid", b"pid", b"nr_reclaimed",
)

cdef struct text_name:
    int length
    int value
    char text[MAX_NAME]

cdef text_name names[NAMES]
cdef text_name keys[KEYS]
cdef int zone_lengths[6]
cdef char zone_names[6][8]

assert len(DEF_EVENTS) == NAMES and len(DEF_KEYS) == KEYS and K_RECLAIMED + 1 == KEYS


def _fill_tables():
    cdef int i
    cdef bytes text
    cdef const char *p
    for i, (text, number) in enumerate(DEF_EVENTS):
        p = text
        names[i].length = len(text)
        names[i].value = number
        memcpy(names[i].text, p, len(text))
    for i, text in enumerate(DEF_KEYS):
        p = text
        keys[i].length = len(text)
        keys[i].value = i
        memcpy(keys[i].text, p, len(text))
    for i, name in enumerate(ZONES):
        text = name.encode()
        p = text
        zone_lengths[i] = len(text)
        memcpy(zone_names[i], p, len(text))


_fill_tables()

cdef struct comm_slot:
    uint64_t lo
    uint64_t hi
    int number      # id + 1; 0 = empty

cdef struct marker_span:
    Py_ssize_t row
    Py_ssize_t start
    Py_ssize_t length

cdef struct parser:
    event_row *rows
    Py_ssize_t nr_rows
    Py_ssize_t max_rows
    int64_t *probes         # P_COLUMNS per row
    Py_ssize_t nr_probes
    Py_ssize_t max_probes
    marker_span *markers
    Py_ssize_t nr_markers
    comm_slot *comms
    int nr_comms
    int last_comm
    uint64_t last_lo
    uint64_t last_hi
    const char *base        # start of the text of this call
    int64_t line            # lines read so far
    int64_t events          # event lines read so far, known or not
    int64_t unknown         # ... of which not in DEF_EVENTS
    int64_t lost            # by [LOST n EVENTS] lines
    int64_t in_buffer       # of the heading, -1 without
    int64_t written
    int64_t first_time
    int64_t last_time
    int fraction            # digits after the point of the last time stamp, -1 without
    uint64_t vmemmap        # struct page of pfn 0, once known
    bint has_vmemmap
    int max_cpu
    int64_t max_pfn


cdef inline bint is_digit(char c) noexcept nogil:
    return c'0' <= c <= c'9'


cdef inline int hex_digit(char c) noexcept nogil:
    if c'0' <= c <= c'9':
        return c - c'0'
    if c'a' <= c <= c'f':
        return c - c'a' + 10
    if c'A' <= c <= c'F':
        return c - c'A' + 10
    return -1


# Every line ends in a newline that is inside the buffer, so the digit loops
# below stop at the line's end without looking at its length.

cdef inline const char *read_hex(const char *p, uint64_t *out) noexcept nogil:
    """Digits after 0x; NULL without any or with more than 16."""
    cdef uint64_t value = 0
    cdef const char *start = p
    cdef int digit = hex_digit(p[0])
    while digit >= 0:
        value = value << 4 | <uint64_t>digit
        p += 1
        digit = hex_digit(p[0])
    if p == start or p - start > 16:
        return NULL
    out[0] = value
    return p


cdef inline const char *read_dec(const char *p, uint64_t *out) noexcept nogil:
    """Decimal digits; NULL without any or from 10^18 on."""
    cdef uint64_t value = 0
    cdef const char *start = p
    while is_digit(p[0]):
        value = value * 10 + <uint64_t>(p[0] - c'0')
        p += 1
        if p - start > 18:
            return NULL
    if p == start:
        return NULL
    out[0] = value
    return p


cdef inline const char *read_small(const char *p, int64_t *out) noexcept nogil:
    """A decimal number that nearly always has one digit."""
    cdef uint64_t value
    if is_digit(p[0]) and not is_digit(p[1]):
        out[0] = p[0] - c'0'
        return p + 1
    p = read_dec(p, &value)
    if p != NULL:
        out[0] = <int64_t>value
    return p


cdef inline const char *read_pfn(const char *p, int64_t *out) noexcept nogil:
    cdef uint64_t value
    if p[0] == c'0' and p[1] == c'x':
        p = read_hex(p + 2, &value)
    else:
        p = read_dec(p, &value)
    if p != NULL:
        out[0] = <int64_t>value if value < (<uint64_t>1 << 40) else -2
    return p


cdef inline bint at(const char *p, const char *e, const char *text, Py_ssize_t n) noexcept nogil:
    return e - p >= n and memcmp(p, text, n) == 0


cdef int intern_comm(parser *s, const char *text, Py_ssize_t length) noexcept nogil:
    """Id of a task name of at most 16 bytes; names beyond MAX_COMMS share the last id."""
    cdef uint64_t word[2]
    cdef uint64_t h
    cdef comm_slot *slot
    word[0] = 0
    word[1] = 0
    if length > 16:
        text += length - 16
        length = 16
    memcpy(<char *>word, text, length)
    if word[0] == s.last_lo and word[1] == s.last_hi:
        return s.last_comm
    h = (word[0] * <uint64_t>0x9E3779B97F4A7C15) ^ (word[1] * <uint64_t>0xC2B2AE3D27D4EB4F)
    h ^= h >> 29
    h = (h * <uint64_t>0xBF58476D1CE4E5B9) >> 40
    while True:
        slot = &s.comms[h & (COMM_SLOTS - 1)]
        if slot.number == 0:
            if s.nr_comms >= MAX_COMMS:
                return MAX_COMMS
            s.nr_comms += 1
            slot.lo = word[0]
            slot.hi = word[1]
            slot.number = s.nr_comms
            break
        if slot.lo == word[0] and slot.hi == word[1]:
            break
        h += 1
    s.last_lo = word[0]
    s.last_hi = word[1]
    s.last_comm = slot.number - 1
    return s.last_comm


cdef inline int flag_bits(const char *p, Py_ssize_t n) noexcept nogil:
    """The ``irqs-off need-resched context depth migrate-disable`` characters."""
    cdef int bits = FL_KNOWN
    cdef int depth
    if n < 4:
        return 0
    if p[0] == c'd':
        bits |= FL_IRQS_OFF
    elif p[0] == c'D':
        bits |= FL_IRQS_OFF | FL_BH_OFF
    elif p[0] == c'b':
        bits |= FL_BH_OFF
    if p[1] == c'l' or p[1] == c'L':
        bits |= FL_RESCHED_LAZY
    elif p[1] == c'b' or p[1] == c'B':
        bits |= FL_RESCHED_LAZY | FL_NEED_RESCHED
    elif p[1] != c'.':
        bits |= FL_NEED_RESCHED
    if p[2] == c'h':
        bits |= FL_HARDIRQ
    elif p[2] == c's':
        bits |= FL_SOFTIRQ
    elif p[2] == c'H':
        bits |= FL_HARDIRQ | FL_SOFTIRQ
    elif p[2] == c'z' or p[2] == c'Z':
        bits |= FL_NMI
    depth = hex_digit(p[3])
    if depth > 0:
        bits |= depth
    if n > 4 and p[4] != c'.':
        bits |= FL_MIGRATE_DISABLED
    return bits


cdef int read_time(parser *s, const char *p, int64_t *out, const char **end) noexcept nogil:
    """``seconds.fraction:`` to ns, or a plain count."""
    cdef uint64_t seconds, part = 0
    cdef int digits = 0
    p = read_dec(p, &seconds)
    if p == NULL:
        return BAD_TIME
    if p[0] == c'.':
        p += 1
        while is_digit(p[0]) and digits < 9:
            part = part * 10 + <uint64_t>(p[0] - c'0')
            p += 1
            digits += 1
        if digits == 0 or seconds > <uint64_t>9000000000:
            return BAD_TIME
        s.fraction = digits
        if digits == 6:
            part *= 1000
        else:
            while digits < 9:
                part *= 10
                digits += 1
        seconds = seconds * 1000000000 + part
    else:
        s.fraction = -1
    if p[0] != c':':
        return BAD_TIME
    out[0] = <int64_t>seconds
    end[0] = p + 1
    return OK


cdef int read_head(parser *s, const char *p, const char *e, event_row *r,
                   const char **rest) noexcept nogil:
    """``task-pid [cpu] flags time:``; *rest* is the event name."""
    cdef const char *bracket = NULL
    cdef const char *q
    cdef const char *name_end
    cdef uint64_t value
    cdef int code
    if e - p > 48 and p[16] == c'-' and p[24] == c' ' and p[25] == c'[' and p[29] == c']' \
            and p[36] == c' ':
        # What the kernel prints for process numbers of up to 7 and CPUs of up to 3 digits.
        q = read_dec(p + 17, &value)
        if q != NULL and is_digit(p[26]) and is_digit(p[27]) and is_digit(p[28]) \
                and p[31] != c' ' and p[35] != c' ':
            r.pid = <int32_t>value
            r.cpu = <uint16_t>((p[26] - c'0') * 100 + (p[27] - c'0') * 10 + p[28] - c'0')
            r.flags = <uint16_t>flag_bits(p + 31, 5)
            q = p + 16
            name_end = q
            q = p
            while q[0] == c' ' and q < name_end:
                q += 1
            r.comm = <uint16_t>intern_comm(s, q, name_end - q)
            q = p + 37
            while q[0] == c' ':
                q += 1
            code = read_time(s, q, &r.time, &q)
            if code == OK:
                while q[0] == c' ':
                    q += 1
                rest[0] = q
                return OK
    # Anything else: the last "[digits]" that is followed by flags or a time stamp.
    q = p
    while True:
        q = <const char *>memchr(q, c'[', e - q)
        if q == NULL:
            return BAD_HEAD
        bracket = q
        q += 1
        if not is_digit(q[0]):
            continue
        q = read_dec(q, &value)
        if q == NULL:
            return BAD_CPU
        if q[0] != c']' or q[1] != c' ':
            q = bracket + 1
            continue
        break
    if value > MAX_CPU - 1:
        return BAD_CPU
    r.cpu = <uint16_t>value
    name_end = bracket
    while name_end > p and name_end[-1] == c' ':
        name_end -= 1
    if name_end > p and name_end[-1] == c')':
        # record-tgid prints "(tgid)" here.
        while name_end > p and name_end[0] != c'(':
            name_end -= 1
        while name_end > p and name_end[-1] == c' ':
            name_end -= 1
    bracket = name_end
    while bracket > p and is_digit(bracket[-1]):
        bracket -= 1
    if bracket == p or bracket == name_end or (bracket[-1] != c'-' and bracket[-1] != c' '):
        return BAD_HEAD
    if read_dec(bracket, &value) == NULL or value > <uint64_t>0x7FFFFFFF:
        return BAD_PID
    r.pid = <int32_t>value
    name_end = bracket - 1
    while name_end > p and name_end[-1] == c' ':
        name_end -= 1
    while p < name_end and p[0] == c' ':
        p += 1
    r.comm = <uint16_t>intern_comm(s, p, name_end - p)
    q += 1
    while q[0] == c' ':
        q += 1
    r.flags = 0
    if not is_digit(q[0]):
        bracket = <const char *>memchr(q, c' ', e - q)
        if bracket == NULL:
            return BAD_HEAD
        r.flags = <uint16_t>flag_bits(q, bracket - q)
        q = bracket
        while q[0] == c' ':
            q += 1
    code = read_time(s, q, &r.time, &q)
    if code != OK:
        return code
    while q[0] == c' ':
        q += 1
    rest[0] = q
    return OK


cdef int read_pairs(const char *p, const char *e, int64_t *values, uint64_t *have) noexcept nogil:
    """Collect known ``key=value`` pairs; what is not one is passed over."""
    cdef const char *start
    cdef const char *q
    cdef uint64_t value
    cdef bint negative
    cdef int i, key
    while p < e:
        while p < e and p[0] == c' ':
            p += 1
        if p < e and p[0] == c'(':
            # "(function+0x0/0x280)" of a probe.
            p = <const char *>memchr(p, c')', e - p)
            if p == NULL:
                return BAD_FIELD
            p += 1
            continue
        start = p
        while p < e and p[0] != c' ' and p[0] != c'=':
            p += 1
        if p >= e or p[0] != c'=':
            continue
        key = -1
        for i in range(KEYS):
            if keys[i].length == p - start and memcmp(keys[i].text, start, p - start) == 0:
                key = i
                break
        p += 1
        if p < e and p[0] == c'"':
            p += 1
            start = p
            p = <const char *>memchr(p, c'"', e - p)
            if p == NULL:
                return BAD_FIELD
            if key == K_ZONE:
                values[K_ZONE] = -1
                for i in range(6):
                    if zone_lengths[i] == p - start \
                            and memcmp(zone_names[i], start, p - start) == 0:
                        values[K_ZONE] = i
                if values[K_ZONE] < 0:
                    return BAD_FIELD
                have[0] |= <uint64_t>1 << K_ZONE
            p += 1
            continue
        if key >= 0 and key != K_ZONE:
            negative = p < e and p[0] == c'-'
            q = p + 1 if negative else p
            if q[0] == c'0' and q[1] == c'x':
                q = read_hex(q + 2, &value)
            elif key == K_PAGE:
                q = read_hex(q, &value)     # %p prints no 0x
                if q == NULL:
                    value = 0               # (null), (____ptrval____)
                    q = p
                    while q < e and q[0] != c' ':
                        q += 1
            else:
                q = read_dec(q, &value)
            if q == NULL:
                return BAD_NUMBER if is_digit(p[0]) else BAD_FIELD
            if q < e and q[0] != c' ':
                return BAD_FIELD
            if negative:
                value = 0 - value
            values[key] = <int64_t>value
            have[0] |= <uint64_t>1 << key
            p = q
        while p < e and p[0] != c' ':
            p += 1
    return OK


cdef inline bint has(uint64_t have, int key) noexcept nogil:
    return (have >> key) & 1


cdef inline int check_page(parser *s, int64_t pfn, int64_t order, int64_t mt) noexcept nogil:
    if pfn < 0:
        return BAD_PFN
    if order < 0 or order > MAX_ORDER_READ:
        return BAD_ORDER
    if mt < 0 or mt > MAX_TYPE_READ:
        return BAD_TYPE
    if pfn > s.max_pfn:
        s.max_pfn = pfn
    return OK


cdef const char *read_page_fields(parser *s, const char *p, const char *e,
                                  event_row *r) noexcept nogil:
    """``page=... pfn=0x... order=n``, as the kernel prints it; NULL if it is not that."""
    cdef uint64_t page
    cdef const char *q
    if at(p, e, b"page=", 5):
        p += 5
        if not s.has_vmemmap:
            q = p + 2 if p[0] == c'0' and p[1] == c'x' else p
            q = read_hex(q, &page)
            if q != NULL and at(q, e, b" pfn=", 5) and page >> 63:
                q = read_pfn(q + 5, &r.a)
                if q != NULL and r.a >= 0:
                    s.vmemmap = page - (<uint64_t>r.a << 6)
                    s.has_vmemmap = True
        if e - p > 18 and p[16] == c' ':
            p += 17
        elif e - p > 20 and p[18] == c' ':
            p += 19
        else:
            q = <const char *>memchr(p, c' ', e - p)
            if q == NULL:
                return NULL
            p = q + 1
    if not at(p, e, b"pfn=", 4):
        return NULL
    p = read_pfn(p + 4, &r.a)
    if p == NULL or not at(p, e, b" order=", 7):
        return NULL
    return read_small(p + 7, &r.b)


cdef int read_kmem(parser *s, const char *p, const char *e, event_row *r) noexcept nogil:
    """Fields of the five page tracepoints."""
    cdef int64_t values[KEYS]
    cdef uint64_t have = 0
    cdef int code
    cdef const char *q = read_page_fields(s, p, e, r)
    r.c = 0
    r.d = 0
    if q != NULL and r.event != EV_FREE and r.event != EV_FREE_BATCHED:
        if at(q, e, b" migratetype=", 13):
            q = read_small(q + 13, &r.c)
            if q != NULL and r.event == EV_ZONE_LOCKED:
                if at(q, e, b" percpu_refill=", 15):
                    q = read_small(q + 15, &r.d)
                elif q < e and q[0] != c' ':
                    q = NULL
        else:
            q = NULL
    if q == NULL or (q < e and q[0] != c' '):
        # Same fields, another order or spacing.
        code = read_pairs(p, e, values, &have)
        if code != OK:
            return code
        if not has(have, K_PFN) or not has(have, K_ORDER):
            return BAD_FIELD
        if r.event in (EV_ALLOC, EV_ZONE_LOCKED, EV_PCPU_DRAIN) and not has(have, K_MT):
            return BAD_FIELD
        r.a = values[K_PFN] if 0 <= values[K_PFN] < (<int64_t>1 << 40) else -2
        r.b = values[K_ORDER]
        r.c = values[K_MT] if has(have, K_MT) else 0
        r.d = values[K_REFILL] if has(have, K_REFILL) else 0
    code = check_page(s, r.a, r.b, r.c)
    if code == OK and r.event == EV_ALLOC and r.a == 0:
        r.a = -1    # a failed request
    return code


cdef int read_other(parser *s, const char *p, const char *e, event_row *r) noexcept nogil:
    """Fields of the rarer events."""
    cdef int64_t values[KEYS]
    cdef uint64_t have = 0
    cdef int64_t *row
    cdef int code, i
    cdef int[P_COLUMNS] columns = [
        K_N, K_PINDEX, K_PCP, K_ZONE, K_NODE, K_ZFL, K_FREE, K_COUNT, K_HIGH, K_BATCH, K_HMIN,
        K_HMAX, K_AF, K_FC, K_PFL, K_FF,
    ]
    if r.event == EV_MARKER:
        s.markers[s.nr_markers].row = s.nr_rows
        s.markers[s.nr_markers].start = p - s.base
        s.markers[s.nr_markers].length = e - p
        s.nr_markers += 1
        return OK
    if r.event == EV_WORK_START or r.event == EV_WORK_END:
        # "work struct ADDRESS: function NAME"; 1 for the vmstat worker.
        r.a = e - p > 13 and memcmp(e - 13, b"vmstat_update", 13) == 0
        return OK
    if r.event in (EV_FORK, EV_EXEC, EV_EXIT):
        # comm= may hold anything, blanks and equal signs included.
        return OK
    code = read_pairs(p, e, values, &have)
    if code != OK:
        return code
    for i in range(KEYS):
        if not has(have, i):
            values[i] = -1
    r.a = values[K_PFN]
    r.b = values[K_ORDER]
    r.c = values[K_MT]
    r.d = values[K_N]
    if r.event == EV_EXTFRAG:
        if not (has(have, K_PFN) and has(have, K_AORDER) and has(have, K_FORDER)
                and has(have, K_AMT) and has(have, K_FMT)):
            return BAD_FIELD
        r.b = values[K_AORDER]
        r.c = values[K_AMT]
        code = check_page(s, r.a if r.a < (<int64_t>1 << 40) else -1, r.b, r.c)
        if code != OK:
            return code
        if values[K_FORDER] < 0 or values[K_FORDER] > MAX_ORDER_READ:
            return BAD_ORDER
        if values[K_FMT] < 0 or values[K_FMT] > MAX_TYPE_READ:
            return BAD_TYPE
        r.d = values[K_FORDER] | values[K_FMT] << 8 | (values[K_OWN] & 1) << 16 \
            if has(have, K_OWN) else values[K_FORDER] | values[K_FMT] << 8
        return OK
    if r.event in (EV_KSWAPD_WAKE, EV_KSWAPD_SLEEP, EV_RECLAIM_BEGIN):
        r.c = values[K_NID]
        return OK
    if r.event == EV_RECLAIM_END:
        r.d = values[K_RECLAIMED]
        return OK
    if r.event == EV_ALLOC_PAGES_BULK:
        if not has(have, K_NR):
            return BAD_FIELD
        r.a = values[K_GFP]
        r.c = values[K_NID]
        r.d = values[K_NR]
        return OK if 0 <= r.d < (<int64_t>1 << 40) else BAD_NUMBER
    if r.event == EV_ALLOC_PAGES_BULK_RET:
        return OK if 0 <= r.d < (<int64_t>1 << 40) else BAD_FIELD
    # Probes on functions that work on pages or on a struct per_cpu_pages.
    if r.event == EV_FREE_ONE_PAGE:
        if not has(have, K_PFN) or not has(have, K_ORDER):
            return BAD_FIELD
        return check_page(s, r.a if r.a < (<int64_t>1 << 40) else -1, r.b, 0)
    if r.event in (EV_FREE_CONTIG, EV_PAGE_COMMIT, EV_SET_BLOCK_TYPE):
        if not has(have, K_PAGE):
            return BAD_FIELD
        r.a = values[K_PAGE]
        if r.event == EV_FREE_CONTIG:
            if not has(have, K_NR) or values[K_NR] < 1 or values[K_NR] > (<int64_t>1 << 40):
                return BAD_FIELD
            r.d = values[K_NR]
            return OK
        r.c = values[K_SMT]
        if not has(have, K_SMT) or r.c < 0 or r.c > MAX_TYPE_READ:
            return BAD_TYPE
        if r.event == EV_SET_BLOCK_TYPE:
            return OK
        if not has(have, K_ORDER) or not has(have, K_PCP):
            return BAD_FIELD
        if r.b < 0 or r.b > MAX_ORDER_READ:
            return BAD_ORDER
    elif r.event == EV_DRAIN_PAGES_ZONE:
        if not has(have, K_OFCPU) or not has(have, K_ZONE):
            return BAD_FIELD
        r.d = values[K_OFCPU]
        if r.d < 0 or r.d >= MAX_CPU:
            return BAD_CPU
    elif r.event == EV_RMQUEUE_BULK:
        if not has(have, K_ORDER) or not has(have, K_N) or not has(have, K_LIST):
            return BAD_FIELD
        r.c = values[K_SMT]
        values[K_PCP] = values[K_LIST]
        if r.b < 0 or r.b > MAX_ORDER_READ:
            return BAD_ORDER
    elif r.event in (EV_FREE_PCPPAGES_BULK, EV_DRAIN_ZONE_PAGES, EV_DECAY_PCP_HIGH):
        if not has(have, K_PCP) or not has(have, K_COUNT):
            return BAD_FIELD
        if r.event == EV_FREE_PCPPAGES_BULK and (not has(have, K_N) or not has(have, K_PINDEX)):
            return BAD_FIELD
    r.probe = <int32_t>s.nr_probes
    row = s.probes + s.nr_probes * P_COLUMNS
    for i in range(P_COLUMNS):
        row[i] = values[columns[i]]
    s.nr_probes += 1
    return OK


cdef int find_name(const char *p, Py_ssize_t n) noexcept nogil:
    """Event id of a name, or 0; compiler suffixes of functions do not count."""
    cdef int i
    cdef const char *dot
    dot = <const char *>memchr(p, c'.', n)
    if dot != NULL and dot > p:
        n = dot - p
    for i in range(NAMES):
        if names[i].length == n and memcmp(names[i].text, p, n) == 0:
            return names[i].value
    return 0


cdef int read_heading(parser *s, const char *p, const char *e) noexcept nogil:
    """A line that is no event: comment, notice of lost events, tool banner."""
    cdef const char *q
    cdef uint64_t value, other
    if p[0] == c'#':
        if at(p, e, b"# entries-in-buffer/entries-written: ", 37):
            q = read_dec(p + 37, &value)
            if q == NULL or q[0] != c'/':
                return BAD_NUMBER
            q = read_dec(q + 1, &other)
            if q == NULL:
                return BAD_NUMBER
            s.in_buffer = <int64_t>value
            s.written = <int64_t>other
        return BLANK
    if at(p, e, b"CPU:", 4):
        # ftrace: "CPU:3 [LOST 12 EVENTS]"; trace-cmd: "CPU:3 [12 EVENTS DROPPED]".
        q = <const char *>memchr(p, c'[', e - p)
        if q == NULL:
            return BAD_HEAD
        q += 1
        if at(q, e, b"LOST ", 5):
            q += 5
        if is_digit(q[0]):
            q = read_dec(q, &value)
            if q == NULL or s.lost > (<int64_t>1 << 61):
                return BAD_NUMBER
            s.lost += <int64_t>value
        elif at(q, e, b"EVENTS", 6):
            s.lost += 1     # at least one; the kernel did not know how many
        else:
            return BAD_HEAD
        return BLANK
    if at(p, e, b"cpus=", 5) or at(p, e, b"version = ", 10):
        return BLANK
    if at(p, e, b"CPU ", 4) and e - p > 9 and memcmp(e - 8, b"is empty", 8) == 0:
        return BLANK
    return BAD_HEAD


cdef int read_line(parser *s, const char *p, const char *e) noexcept nogil:
    """Parse one line, without its newline at *e*."""
    cdef event_row *r = s.rows + s.nr_rows
    cdef const char *q
    cdef const char *name
    cdef int code
    if e > p and e[-1] == c'\r':
        e -= 1
    if p == e:
        return BLANK
    if p[0] == c'#':
        return read_heading(s, p, e)
    code = read_head(s, p, e, r, &q)
    if code != OK:
        if code == BAD_HEAD and read_heading(s, p, e) == BLANK:
            return BLANK
        return code
    if q >= e:
        return BAD_HEAD
    r.line = s.line
    r.probe = -1
    r.event = 0
    # The five frequent events, by their first bytes.
    if at(q, e, b"mm_page_", 8):
        if at(q + 8, e, b"alloc: ", 7):
            r.event = EV_ALLOC
            q += 15
        elif at(q + 8, e, b"free: ", 6):
            r.event = EV_FREE
            q += 14
        elif at(q + 8, e, b"free_batched: ", 14):
            r.event = EV_FREE_BATCHED
            q += 22
        elif at(q + 8, e, b"alloc_zone_locked: ", 19):
            r.event = EV_ZONE_LOCKED
            q += 27
        elif at(q + 8, e, b"pcpu_drain: ", 12):
            r.event = EV_PCPU_DRAIN
            q += 20
    if r.event:
        code = read_kmem(s, q, e, r)
    else:
        name = q
        while q < e and q[0] != c':' and q[0] != c' ':
            q += 1
        if q + 1 < e and q[0] == c':' and q[1] != c' ':
            # perf prints the subsystem first: "kmem:mm_page_alloc: ".
            name = q + 1
            q += 1
            while q < e and q[0] != c':' and q[0] != c' ':
                q += 1
        if q == name:
            return BAD_HEAD
        r.event = <uint16_t>find_name(name, q - name)
        r.a = 0
        r.b = 0
        r.c = 0
        r.d = 0
        if at(q, e, b" <-", 3):
            # A hit of the function tracer; a = 1 if the vmstat worker called.
            if r.event:
                r.event |= EV_HIT
                r.a = at(q + 3, e, b"vmstat_update", 13)
        elif q < e and q[0] == c':':
            q += 1
            while q < e and q[0] == c' ':
                q += 1
            if r.event in (EV_ALLOC, EV_FREE, EV_FREE_BATCHED, EV_ZONE_LOCKED, EV_PCPU_DRAIN):
                code = read_kmem(s, q, e, r)
            elif r.event:
                code = read_other(s, q, e, r)
        elif r.event:
            return BAD_FIELD
    if code != OK:
        return code
    s.events += 1
    if s.events == 1:
        s.first_time = r.time
    s.last_time = r.time
    if r.cpu > s.max_cpu:
        s.max_cpu = r.cpu
    if r.event == 0:
        s.unknown += 1
        return BLANK
    return OK


cdef int parse_lines(parser *s, const char *text, Py_ssize_t length,
                     Py_ssize_t *used) noexcept nogil:
    """Parse whole lines until the text or the room for rows ends.

    Every line of *text* ends in a newline.  *used* is where to go on.
    """
    cdef const char *p = text
    cdef const char *end = text + length
    cdef const char *e
    cdef int code
    s.base = text
    while p < end:
        if s.nr_rows >= s.max_rows or s.nr_probes >= s.max_probes \
                or s.nr_markers >= MAX_MARKERS:
            used[0] = p - text
            return FULL
        e = <const char *>memchr(p, c'\n', end - p)
        s.line += 1
        code = read_line(s, p, e)
        if code == OK:
            s.nr_rows += 1
        elif code < 0:
            used[0] = p - text
            if memchr(p, 0, e - p) != NULL:
                return BAD_NUL
            return code
        p = e + 1
    used[0] = length
    return OK


cdef class _Parser(Exclusive):
    """Owner of a parser's memory; turns its codes into exceptions."""

    cdef parser s
    cdef object file
    cdef object _comms
    cdef object _markers
    cdef list _names
    cdef readonly list markers

    def __cinit__(self, file):
        self.file = file
        self._comms = np.zeros(COMM_SLOTS * sizeof(comm_slot), np.uint8)  # touched as names come
        self._markers = bytearray(MAX_MARKERS * sizeof(marker_span))
        cdef unsigned char[::1] comms = self._comms
        cdef unsigned char[::1] spans = self._markers
        self.s.comms = <comm_slot *>&comms[0]
        self.s.markers = <marker_span *>&spans[0]
        self.s.in_buffer = self.s.written = -1
        self.s.fraction = -2
        self.markers = []
        self._names = []

    def parse(self, const unsigned char[::1] text, unsigned char[::1] rows,
              int64_t[:, ::1] probes):
        """Parse whole lines of *text*; bytes used, rows and probe rows written."""
        begin_use(self)
        try:
            return self._parse(text, rows, probes)
        finally:
            end_use(self)

    cdef tuple _parse(self, const unsigned char[::1] text, unsigned char[::1] rows,
                      int64_t[:, ::1] probes):
        cdef Py_ssize_t used = 0
        cdef Py_ssize_t length = text.shape[0]
        cdef int code
        cdef const char *p
        if length == 0:
            return 0, 0, 0
        if text[length - 1] != c'\n' or probes.shape[1] != P_COLUMNS:
            raise ValueError("text must end in a newline, probes have P_COLUMNS columns")
        p = <const char *>&text[0]
        self.s.rows = <event_row *>&rows[0]
        self.s.max_rows = rows.shape[0] // <Py_ssize_t>sizeof(event_row)
        self.s.probes = &probes[0, 0]
        self.s.max_probes = probes.shape[0]
        self.s.nr_rows = self.s.nr_probes = self.s.nr_markers = 0
        with nogil:
            code = parse_lines(&self.s, p, length, &used)
        if code < 0:
            raise InputError(_WHY[code], file=self.file, row=self.s.line)
        cdef Py_ssize_t i
        for i in range(self.s.nr_markers):
            self.s.rows[self.s.markers[i].row].a = len(self.markers)
            self.markers.append(
                p[self.s.markers[i].start:self.s.markers[i].start + self.s.markers[i].length]
                .decode("utf-8", "replace"))
        return used, self.s.nr_rows, self.s.nr_probes

    @property
    def numbers(self):
        """Counters, as the struct has them."""
        check_idle(self)
        return {
            "lines": self.s.line, "events": self.s.events, "unknown": self.s.unknown,
            "lost": self.s.lost, "in_buffer": self.s.in_buffer, "written": self.s.written,
            "max_cpu": self.s.max_cpu, "max_pfn": self.s.max_pfn, "fraction": self.s.fraction,
            "vmemmap": self.s.vmemmap if self.s.has_vmemmap else None,
            "first_time": self.s.first_time, "last_time": self.s.last_time,
        }

    @property
    def comms(self):
        """Task names by id."""
        cdef Py_ssize_t i
        cdef comm_slot *slot
        cdef char text[16]
        check_idle(self)
        if len(self._names) == self.s.nr_comms:
            return self._names[:]
        found = [""] * self.s.nr_comms
        for i in range(COMM_SLOTS):
            slot = &self.s.comms[i]
            if slot.number:
                memcpy(text, &slot.lo, 8)
                memcpy(text + 8, &slot.hi, 8)
                found[slot.number - 1] = text[:16].rstrip(b"\0").decode("utf-8", "replace")
        self._names = found
        return found[:]


class Events:
    """Parsed events: named columns over one record array.

    Attributes
    ----------
    rows : (N,) ndarray of `EVENT`
        ``events.rows["time"]`` and so on; ``time`` in ns, ``a`` ... ``d`` as
        `trace/events.pxd` says.
    probes : (M, 16) ndarray of int64
        Fields of probe events (`PROBE_COLUMNS`), row ``rows["probe"]``.
    spilled : bool
        The rows lie in a temporary file, not in memory.
    """

    __slots__ = ("_event", "probes", "rows", "spilled")

    def __init__(self, rows, probes, event=None, spilled=False):
        self.rows = rows
        self.probes = probes
        self.spilled = spilled
        self._event = event

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, column):
        return self.rows[column]

    def is_event(self, name):
        """Mask of the events called *name*; ``"hit:NAME"`` for the function tracer's."""
        hit = name.startswith("hit:")
        number = EVENT_IDS[name.removeprefix("hit:")]
        if self._event is None:  # side by side; in the rows they are 64 bytes apart
            self._event = np.ascontiguousarray(self.rows["event"])
        return self._event == number + (HIT if hit else 0)


cdef enum:
    ROWS_PER_BLOCK = 1 << 16
    PROBES_PER_BLOCK = 1 << 14
    PIECE = 1 << 22         # bytes read at a time; a larger one left the L2 cache and was slower

#: Rows of a trace that are kept in memory [bytes]; more lie in a temporary file.
IN_MEMORY = 1 << 29

#: A compressed file may grow this many times; trace text reaches about 20.
MAX_RATIO = 400
#: ... once it has reached this size [bytes].
RATIO_FROM = 1 << 26


def _gunzip(raw):
    """Pieces of a gzip file, up to where it was cut."""
    member = zlib.decompressobj(31)
    while data := raw.read(1 << 18):
        while data:
            yield member.decompress(data, PIECE)
            data = member.unconsumed_tail
            if member.eof:
                data = member.unused_data.lstrip(b"\0")
                member = zlib.decompressobj(31)


def _unzstd(raw):
    import zstandard

    stream = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(
        raw, read_across_frames=True)
    try:
        while piece := stream.read(PIECE):
            yield piece
    except zstandard.ZstdError as error:
        raise zlib.error(error) from None


class _Counted:
    """A file or pipe that knows how much of it was read."""

    def __init__(self, raw):
        self.raw = raw
        self.bytes = 0

    def read(self, size=-1):
        data = self.raw.read(size)
        self.bytes += len(data)
        return data


def open_text(path, *, max_bytes=None):
    """Open a plain, gzip or zstd file for reading, whatever its name says.

    Parameters
    ----------
    path : path-like
        It may be a pipe.
    max_bytes : int, optional
        Refuse a file that expands beyond this size [bytes].

    Yields
    ------
    bytes
        Pieces of the text.  A compressed file that ends early ends the pieces
        and sets nothing: the caller sees an unfinished line.

    Raises
    ------
    InputError
        For damaged compression, or one that expands suspiciously.
    """
    path = Path(path)
    with open_stream(path) as raw:
        magic = raw.peek(4)[:4]
        source = _Counted(raw)
        packed = True
        if magic[:2] == b"\x1f\x8b":
            pieces = _gunzip(source)
        elif magic == b"\x28\xb5\x2f\xfd":
            pieces = _unzstd(source)
        else:
            packed = False
            pieces = iter(lambda: raw.read(PIECE), b"")
        total = 0
        while True:
            try:
                piece = next(pieces, None)
            except zlib.error as error:
                raise InputError(f"damaged compression: {error}", file=path) from None
            if piece is None:
                return
            total += len(piece)
            if packed and total > RATIO_FROM and total > MAX_RATIO * source.bytes:
                raise InputError(
                    f"{source.bytes} bytes expand to more than {total}; trace text is never "
                    f"compressed over {MAX_RATIO} times", file=path)
            if max_bytes is not None and total > max_bytes:
                raise InputError(f"expands to more than {max_bytes} bytes", file=path)
            yield piece


class TraceReader:
    """Read a trace in blocks of events, in bounded memory.

    Each iteration reads from the beginning; there is one at a time.

    Parameters
    ----------
    source : path-like or bytes
        A file (plain, gzip, zstd) or the text itself.
    progress : bool
        Show a tqdm bar on stderr, in bytes of the file read.
    max_bytes : int, optional
        Refuse a file that expands beyond this [bytes].

    Attributes
    ----------
    comms, markers : list of str
        Task names and marker texts by the ids in the rows; complete at the end.
    lost : int
        Events that the kernel says it lost: ``[LOST n EVENTS]`` lines and the
        difference of the heading's entries-written and entries-in-buffer.
    truncated : str or None
        The unfinished last line, which was left out.
    missing : int
        Events that the heading promises and the file does not have.

    Raises
    ------
    InputError
        While iterating: a malformed line, with file and line number.
    RuntimeError
        While another iteration, of this thread or another one, has not ended.
    """

    def __init__(self, source, *, progress=False, max_bytes=None):
        self._source = source
        self._progress = progress
        self._max_bytes = max_bytes
        self.truncated = None
        self._file = None if isinstance(source, (bytes, bytearray, memoryview)) else Path(source)
        self._parser = _Parser(self._file)
        self._reading = threading.Lock()

    def _pieces(self):
        if self._file is None:
            yield self._source
            return
        if not self._progress:
            yield from open_text(self._file, max_bytes=self._max_bytes)
            return
        from tqdm import tqdm

        with tqdm(desc=self._file.name, unit="B", unit_scale=True) as bar:
            for piece in open_text(self._file, max_bytes=self._max_bytes):
                yield piece
                bar.update(len(piece))

    def __iter__(self) -> Iterator[Events]:
        if not self._reading.acquire(blocking=False):
            raise RuntimeError("this TraceReader is being read already; give each reader its own")
        try:
            self._parser = _Parser(self._file)
            self.truncated = None
            yield from self._events()
        finally:
            self._reading.release()

    def _events(self):
        parser = self._parser
        carry = b""
        for piece in self._pieces():
            view = memoryview(piece)
            if carry:
                head = bytes(view[:MAX_LINE])
                cut = head.find(b"\n") + 1
                if cut == 0:
                    carry += head
                    if len(view) > len(head) or len(carry) > MAX_LINE:
                        raise InputError(f"a line of more than {MAX_LINE} bytes",
                                         file=self._file, row=parser.numbers["lines"] + 1)
                    continue
                yield from self._blocks(memoryview(carry + head[:cut]))
                view = view[cut:]
            end = piece.rfind(b"\n", len(piece) - len(view)) if not isinstance(
                piece, memoryview) else bytes(piece).rfind(b"\n")
            end = end + 1 - (len(piece) - len(view)) if end >= 0 else 0
            carry = bytes(view[end:])
            if len(carry) > MAX_LINE:
                raise InputError(f"a line of more than {MAX_LINE} bytes",
                                 file=self._file, row=parser.numbers["lines"] + 1)
            if end:
                yield from self._blocks(view[:end])
        if carry:
            self.truncated = carry.decode("utf-8", "replace")

    def _blocks(self, text):
        done = 0
        while done < len(text):
            most = len(text) - done  # a line has at least its end
            rows = np.empty(min(most, ROWS_PER_BLOCK), EVENT)
            probes = np.empty((min(most, PROBES_PER_BLOCK), P_COLUMNS), np.int64)
            used, n, m = self._parser.parse(text[done:], rows.view(np.uint8), probes)
            done += used
            if n:
                yield Events(rows[:n], probes[:m])

    @property
    def comms(self):
        return self._parser.comms

    @property
    def markers(self):
        return self._parser.markers

    @property
    def lost(self):
        n = self._parser.numbers
        return n["lost"] + max(0, n["written"] - n["in_buffer"])

    @property
    def missing(self):
        n = self._parser.numbers
        return 0 if n["in_buffer"] < 0 else n["in_buffer"] - n["events"]

    @property
    def numbers(self):
        """Counters: lines, events, unknown events, largest CPU and pfn, struct page base."""
        return self._parser.numbers


def read_trace(source, *, progress=False, max_bytes=None):
    """Read a whole trace.

    Returns
    -------
    (Events, TraceReader)
        All events, 64 bytes each, and the reader with its counters.  Beyond `IN_MEMORY` bytes they
        lie in a temporary file (of ``TMPDIR``), which nobody else sees and which ends with them.
    """
    reader = TraceReader(source, progress=progress, max_bytes=max_bytes)
    rows, probes, event = _Growing(EVENT), _Growing(np.int64), [np.empty(0, np.uint16)]
    base = 0
    for block in reader:
        r = block.rows
        if base:
            r["probe"][r["probe"] >= 0] += base
        base += len(block.probes)
        rows.append(r)
        probes.append(block.probes.copy().reshape(-1))
        event.append(r["event"].copy())
    return Events(rows.whole(), probes.whole().reshape(-1, P_COLUMNS), np.concatenate(event),
                  rows.file is not None), reader


class _Growing:
    """Records that come block by block.

    Attributes
    ----------
    file : file or None
        Where they lie once they are more than `IN_MEMORY` bytes.
    """

    def __init__(self, dtype):
        self._dtype = dtype
        self._blocks = [np.empty(0, dtype)]
        self._bytes = 0
        self.file = None

    def append(self, block):
        self._bytes += block.nbytes
        self._blocks.append(block)
        if self._bytes <= IN_MEMORY:
            return
        try:
            if self.file is None:
                self.file = tempfile.TemporaryFile(prefix="pcpmodel-")
            for old in self._blocks:
                self.file.write(old.view(np.uint8))
        except OSError as error:
            raise InputError(
                f"no room for the events of this trace in {tempfile.gettempdir()} "
                f"({error.strerror}); TMPDIR may name another place") from error
        self._blocks = []

    def whole(self):
        if self.file is None:
            return np.concatenate(self._blocks)
        self.file.flush()
        return np.frombuffer(mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_READ), self._dtype)

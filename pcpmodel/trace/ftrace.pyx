# cython: auto_pickle=False, autotestdict=False
"""Reader of the text that ftrace, ``trace-cmd report`` and ``perf script`` print.

One pass, no Python object per line.  The five frequent kmem tracepoints, as the kernel itself
prints them, are read by their places (`usual_head`, `usual_event`); whatever is not just that, and
everything rarer, goes through readers of heads and of ``key=value`` pairs, and a table says what
becomes of these (`_FORMS`).  A file is read in pieces, so memory does not grow with it.

The text may come from a stranger.  Every number is range-checked, every access stays inside the
text, the expansion of a compressed file is limited, and a line that is not understood is an error
with its number.
"""

# SPDX-License-Identifier: GPL-2.0-only

from libc.stdint cimport int8_t, int32_t, int64_t, uint16_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, strlen

from pcpmodel.trace.events cimport *

import mmap
import tempfile
from pathlib import Path

import numpy as np

from pcpmodel.errors import InputError
from pcpmodel.trace.packed import open_text

__all__ = ["DEPTH", "EVENT", "EVENT_IDS", "FLAGS", "HIDDEN", "HIT", "INTERRUPT", "MIGRATE_SHIFT",
           "PROBE_COLUMNS", "ZONES", "Events", "TraceReader", "read_trace"]

cdef event_row one_event
#: One event; the columns are fields of this record, as trace/events.pxd has it (see `Events`).
EVENT = np.asarray(<event_row[:1]>&one_event).dtype

#: Columns of `Events.probes`; -1 where the probe did not print the field.
PROBE_COLUMNS = (
    "n", "pindex", "pcp", "zone", "node", "zone_flags", "nr_free", "count", "high", "batch",
    "high_min", "high_max", "alloc_factor", "free_count", "flags", "free_factor",
)
#: Zone names in probe events; the index is what the ``zone`` column holds.
ZONES = ("DMA", "DMA32", "Normal", "HighMem", "Movable", "Device")
#: Added to the id of a function for a hit of the function tracer.
HIT = EV_HIT
HIDDEN = EV_HIDDEN
#: Bits of the ``flags`` column; its low four bits are the preempt depth, the three from
#: `MIGRATE_SHIFT` on how often migration is off, up to 7.
FLAGS = {
    "irqs_off": FL_IRQS_OFF, "bh_off": FL_BH_OFF, "need_resched": FL_NEED_RESCHED,
    "resched_lazy": FL_RESCHED_LAZY, "hardirq": FL_HARDIRQ, "softirq": FL_SOFTIRQ,
    "nmi": FL_NMI, "migrate_disabled": FL_MIGRATE_DISABLED, "known": FL_KNOWN,
}
MIGRATE_SHIFT = FL_MIGRATE_SHIFT
DEPTH = FL_DEPTH
#: Of a line that no task's own work wrote.
INTERRUPT = FL_HARDIRQ | FL_SOFTIRQ | FL_NMI

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #define MAX_PFN ((int64_t)1 << 40)
    #define FIRST_PAGE_ALIGNED ((uint64_t)1 << 20)
    static inline uint64_t load8(const char *p)
    {
        uint64_t x;
        memcpy(&x, p, sizeof(x));
        return x;
    }
    /* Is any of eight bytes a control character, such as the end of a line? */
    #define has_control(x) ((((x) - 0x2020202020202020) & ~(x) & 0x8080808080808080) != 0)
    """
    const int64_t MAX_PFN       # one above the largest page frame number read
    const uint64_t FIRST_PAGE_ALIGNED
    uint64_t load8(const char *p) noexcept nogil
    bint has_control(uint64_t x) noexcept nogil


cdef enum:
    MAX_WORD = 40
    WORD_SLOTS = 128        # of a table
    COMM_SLOTS = 1 << 17
    TASK_SLOTS = 64         # power of two
    MAX_COMMS = 65535       # the last id stands for every later name
    MAX_MARKERS = 4096      # per block
    MAX_ORDER_READ = 10     # MAX_PAGE_ORDER
    MAX_TYPE_READ = 7
    MAX_CPU = 65535
    MAX_LINE = 1 << 16
    NO_KEY = -1
    MOVABLE = 1
    GFP_ACCOUNT = 1 << 22   # include/linux/gfp.h, gfp_types.h, of all releases from v5.10 on
    STATES = 0xFF           # of a task that sleeps, stops or ends: include/linux/sched.h

# Why a line was refused; texts in _WHY.
cdef enum:
    OK = 0
    BLANK = 1               # nothing to record: comment, heading, event we do not follow
    FULL = 2
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

_WHY = {
    BAD_HEAD: "not a trace line; expected 'TASK-PID [CPU] flags seconds: event: fields'",
    BAD_CPU: f"CPU number outside 0..{MAX_CPU}",
    BAD_TIME: "time stamp is not 'seconds.fraction:' or a count below 10^18",
    BAD_FIELD: "a field of this event is missing or unreadable",
    BAD_PFN: "pfn outside 0..2^40",
    BAD_ORDER: f"order outside 0..{MAX_ORDER_READ}",
    BAD_TYPE: f"migratetype outside 0..{MAX_TYPE_READ}",
    BAD_NUMBER: "a number does not fit 64 bits",
    BAD_PID: "process number outside 0..2^31",
    BAD_NUL: "the file is not text",
}

# Keys of key=value fields; first those of a probe's columns.
cdef enum:
    K_N, K_PINDEX, K_PCP, K_ZONE, K_NODE, K_ZFL, K_FREE, K_COUNT, K_HIGH, K_BATCH, K_HMIN
    K_HMAX, K_AF, K_FC, K_PFL, K_FF, K_PFN, K_ORDER, K_MT, K_REFILL, K_AORDER, K_FORDER, K_AMT
    K_FMT, K_OWN, K_OFCPU, K_PAGE, K_NR, K_GFP, K_NID, K_LIST, K_SMT, K_RECLAIMED, KEYS

DEF_KEYS = (
    b"n", b"pindex", b"pcp", b"zone", b"node", b"zfl", b"free", b"count", b"high", b"batch",
    b"hmin", b"hmax", b"af", b"fc", b"pfl", b"ff", b"pfn", b"order", b"migratetype",
    b"percpu_refill", b"alloc_order", b"fallback_order", b"alloc_migratetype",
    b"fallback_migratetype", b"change_ownership", b"of_cpu", b"page", b"nr", b"gfp", b"nid",
    b"list", b"mt", b"nr_reclaimed",
)
#: What a field may be, where an event needs it: least, most, what is wrong with another one.
_RANGES = {
    K_PFN: (0, MAX_PFN - 1, BAD_PFN), K_ORDER: (0, MAX_ORDER_READ, BAD_ORDER),
    K_AORDER: (0, MAX_ORDER_READ, BAD_ORDER), K_FORDER: (0, MAX_ORDER_READ, BAD_ORDER),
    K_MT: (0, MAX_TYPE_READ, BAD_TYPE), K_AMT: (0, MAX_TYPE_READ, BAD_TYPE),
    K_FMT: (0, MAX_TYPE_READ, BAD_TYPE), K_SMT: (0, MAX_TYPE_READ, BAD_TYPE),
    K_OFCPU: (0, MAX_CPU - 1, BAD_CPU), K_NR: (0, MAX_PFN - 1, BAD_NUMBER),
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
    (b"mm_vmscan_direct_reclaim_end", EV_RECLAIM_END), (b"sched_switch", EV_SWITCH),
)
#: Event name -> id in the ``event`` column (the first name of an id is its usual one).
EVENT_IDS = {name.decode(): number for name, number in DEF_EVENTS}

#: By event: fields that it needs, in the order in which they are missed; what a, b, c, d are then
#: (`_USUAL` where not said); and whether all goes to the probe table.  Events that are not here,
#: functions but for their own probes, need nothing and go to that table.
_USUAL = {"a": K_PFN, "b": K_ORDER, "c": K_MT, "d": K_N}
_FORMS = {
    EV_ALLOC: ((K_PFN, K_ORDER, K_MT), {"d": K_REFILL}, False),
    EV_FREE: ((K_PFN, K_ORDER), {"d": K_REFILL}, False),
    EV_FREE_BATCHED: ((K_PFN, K_ORDER), {"d": K_REFILL}, False),
    EV_ZONE_LOCKED: ((K_PFN, K_ORDER, K_MT), {"d": K_REFILL}, False),
    EV_PCPU_DRAIN: ((K_PFN, K_ORDER, K_MT), {"d": K_REFILL}, False),
    EV_EXTFRAG: ((K_PFN, K_AORDER, K_AMT, K_FORDER, K_FMT), {"b": K_AORDER, "c": K_AMT}, False),
    EV_KSWAPD_WAKE: ((), {"c": K_NID}, False),
    EV_KSWAPD_SLEEP: ((), {"c": K_NID}, False),
    EV_RECLAIM_BEGIN: ((), {"c": K_NID}, False),
    EV_RECLAIM_END: ((), {"d": K_RECLAIMED}, False),
    EV_ALLOC_PAGES_BULK: ((K_NR,), {"a": K_GFP, "c": K_NID, "d": K_NR}, False),
    EV_ALLOC_PAGES_BULK_RET: ((K_N,), {}, False),
    EV_FREE_ONE_PAGE: ((K_PFN, K_ORDER), {}, False),
    EV_FREE_CONTIG: ((K_PAGE, K_NR), {"a": K_PAGE, "d": K_NR}, False),
    EV_SET_BLOCK_TYPE: ((K_PAGE, K_SMT), {"a": K_PAGE, "c": K_SMT}, False),
    EV_PAGE_COMMIT: ((K_PAGE, K_SMT, K_ORDER, K_PCP), {"a": K_PAGE, "c": K_SMT}, True),
    EV_DRAIN_PAGES_ZONE: ((K_OFCPU, K_ZONE), {"d": K_OFCPU}, True),
    EV_RMQUEUE_BULK: ((K_ORDER, K_N, K_LIST), {"c": K_SMT}, True),
    EV_FREE_PCPPAGES_BULK: ((K_PCP, K_COUNT, K_N, K_PINDEX), {}, True),
    EV_DRAIN_ZONE_PAGES: ((K_PCP, K_COUNT), {}, True),
    EV_DECAY_PCP_HIGH: ((K_PCP, K_COUNT), {}, True),
}

# A word and the number that it stands for.
cdef struct word:
    int length
    int value
    char text[MAX_WORD]

cdef struct word_table:
    word slot[WORD_SLOTS]

# What a field of an event may be.
cdef struct range_of:
    int64_t least
    int64_t most
    int wrong

cdef struct event_form:
    int8_t needs[8]         # keys, up to NO_KEY
    int8_t column[4]        # keys of a, b, c, d
    bint probe

cdef word_table event_names, key_names, zone_names
cdef range_of ranges[KEYS]
cdef event_form forms[EV_HIT]
cdef uint16_t flag_of[5][256]   # by place in the flags and character

assert len(DEF_KEYS) == KEYS and len(PROBE_COLUMNS) == P_COLUMNS == K_FF + 1


cdef inline word *find_slot(word_table *table, const char *text, Py_ssize_t n) noexcept nogil:
    """The slot of a word of 1 to MAX_WORD characters, or the free one that is its."""
    cdef unsigned int at = (<unsigned char>text[0] * 31 + <unsigned char>text[n - 1]) * 31 + n
    cdef word *slot = &table.slot[at % WORD_SLOTS]
    while slot.length and (slot.length != n or memcmp(slot.text, text, n)):
        at += 1
        slot = &table.slot[at % WORD_SLOTS]
    return slot


cdef inline int number_of(word_table *table, const char *text, Py_ssize_t n) noexcept nogil:
    """What a word stands for, or -1."""
    cdef word *slot
    if not 0 < n <= MAX_WORD:
        return -1
    slot = find_slot(table, text, n)
    return slot.value if slot.length else -1


cdef int fill(word_table *table, pairs) except -1:
    cdef bytes text
    cdef word *slot
    for text, number in pairs:
        slot = find_slot(table, text, len(text))
        slot.length, slot.value = len(text), number
        memcpy(slot.text, <const char *>text, len(text))
    return 0


def _fill_tables():
    cdef int c
    fill(&event_names, DEF_EVENTS)
    fill(&key_names, [(key, k) for k, key in enumerate(DEF_KEYS)])
    fill(&zone_names, [(name.encode(), k) for k, name in enumerate(ZONES)])
    for k in range(KEYS):
        least, most, wrong = _RANGES.get(k, (-(1 << 63), (1 << 63) - 1, OK))
        ranges[k] = range_of(least, most, wrong)
    for event in range(EV_HIT):
        needs, columns, probe = _FORMS.get(event, ((), {}, True))
        for k, key in enumerate([*needs, NO_KEY]):
            forms[event].needs[k] = key
        for k, column in enumerate("abcd"):
            forms[event].column[k] = columns.get(column, _USUAL[column])
        forms[event].probe = probe
    # irqs-off, need-resched, context, preempt depth, migrate-disable
    for c in range(256):
        flag_of[1][c] = 0 if c == c"." else FL_NEED_RESCHED
        flag_of[4][c] = 0 if c == c"." else FL_MIGRATE_DISABLED
        flag_of[4][c] |= min(max(hex_digit(<char>c), 0), 7) << FL_MIGRATE_SHIFT
        flag_of[3][c] = max(hex_digit(<char>c), 0)
    for place, text, bits in (
        (0, b"d", FL_IRQS_OFF), (0, b"D", FL_IRQS_OFF | FL_BH_OFF), (0, b"b", FL_BH_OFF),
        (1, b"lL", FL_RESCHED_LAZY), (1, b"bB", FL_RESCHED_LAZY | FL_NEED_RESCHED),
        (2, b"h", FL_HARDIRQ), (2, b"s", FL_SOFTIRQ), (2, b"H", FL_HARDIRQ | FL_SOFTIRQ),
        (2, b"zZ", FL_NMI),
    ):
        for c in text:
            flag_of[<int>place][c] = bits


cdef struct comm_slot:
    uint64_t lo
    uint64_t hi
    int number      # id + 1; 0 = empty

# How a line began, and what that said.
cdef struct task_slot:
    uint64_t text[3]
    int32_t pid
    uint16_t comm

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
    Py_ssize_t probes_before    # that are elsewhere
    marker_span *markers
    Py_ssize_t nr_markers
    comm_slot *comms
    int nr_comms
    task_slot tasks[TASK_SLOTS]     # by CPU, of the last line
    const char *base        # start of the text of this call
    int64_t line            # lines read so far
    int64_t events          # event lines read so far, of any event
    int64_t lost            # by [LOST n EVENTS] lines
    int64_t in_buffer       # of the last heading, -1 without
    int64_t overwritten     # most by a heading: written, and not in the buffer any more
    int64_t last_time
    int64_t back_line       # the first of an earlier time than the one before, 0 without
    int64_t back_from       # ... whose time this is
    int64_t back_to
    uint64_t vmemmap        # struct page of pfn 0, once known
    bint has_vmemmap
    int max_cpu
    int max_pid


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
        out[0] = <int64_t>value if value < <uint64_t>MAX_PFN else -1
    return p


cdef inline const char *past_blanks(const char *p) noexcept nogil:
    while p[0] == c' ':
        p += 1
    return p


cdef inline bint at(const char *p, const char *e, const char *text, Py_ssize_t n) noexcept nogil:
    return e - p >= n and memcmp(p, text, n) == 0


cdef inline bint passes(const char **p, const char *e, const char *text,
                        Py_ssize_t n) noexcept nogil:
    """Whether a text stands here; then on to what follows it."""
    cdef bint here = at(p[0], e, text, n)
    p[0] += n if here else 0
    return here


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
        if slot.lo == word[0] and slot.hi == word[1]:
            return slot.number - 1
        h += 1


cdef bint is_charged(const char *p, const char *e) noexcept nogil:
    """Whether gfp_flags= of an allocation, the last field as a rule, has __GFP_ACCOUNT.

    Tools that do not know the names of the flags print the number.
    """
    cdef uint64_t flags = 0
    cdef const char *q = <const char *>memchr(p, c'g', e - p)
    while q != NULL and not at(q, e, b"gfp_flags=", 10):
        q = <const char *>memchr(q + 1, c'g', e - q - 1)
    if q != NULL and is_digit(q[10]):
        q = read_hex(q + 12, &flags) if q[11] == c'x' else read_dec(q + 10, &flags)
        return q != NULL and flags & GFP_ACCOUNT
    while e - p > 7:
        p = <const char *>memchr(p, c'A', e - p - 6)
        if p == NULL:
            return False
        if memcmp(p, b"ACCOUNT", 7) == 0:
            return True
        p += 1
    return False


cdef inline int flag_bits(const char *p, Py_ssize_t n) noexcept nogil:
    """The ``irqs-off need-resched context depth migrate-disable`` characters."""
    cdef int bits = FL_KNOWN
    cdef int k
    if n < 4:
        return 0
    for k in range(4):
        bits |= flag_of[k][<unsigned char>p[k]]
    return bits | flag_of[4][<unsigned char>p[4]] if n > 4 else bits


cdef inline int read_time(const char *p, int64_t *out, const char **end) noexcept nogil:
    """``seconds.fraction:`` to ns, or a plain count."""
    cdef uint64_t seconds, part = 0
    cdef int digits = 0
    p = read_dec(past_blanks(p), &seconds)
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
        if digits == 6:
            part *= 1000
        else:
            while digits < 9:
                part *= 10
                digits += 1
        seconds = seconds * 1000000000 + part
    if p[0] != c':':
        return BAD_TIME
    out[0] = <int64_t>seconds
    end[0] = past_blanks(p + 1)
    return OK


cdef int read_head(parser *s, const char *p, const char *e, event_row *r,
                   const char **rest) noexcept nogil:
    """``task-pid [cpu] flags time:``; *rest* is the event name.

    A task's name may hold anything: the CPU is in the first brackets about which all is so.
    """
    cdef const char *bracket = p
    cdef const char *q
    cdef uint64_t cpu
    cdef int code, first = OK
    while True:
        bracket = <const char *>memchr(bracket, c'[', e - bracket)
        if bracket == NULL:
            return first or BAD_HEAD
        bracket += 1
        if not is_digit(bracket[0]):
            continue
        q = read_dec(bracket, &cpu)
        if q == NULL:
            code = BAD_CPU
        elif q[0] != c']' or q[1] != c' ':
            continue
        else:
            code = read_head_at(s, p, e, bracket - 1, q + 1, r, rest)
            if code == OK and cpu > MAX_CPU - 1:
                code = BAD_CPU
        if code == OK:
            r.cpu = <uint16_t>cpu
            return OK
        first = first or code


cdef int read_head_at(parser *s, const char *p, const char *e, const char *bracket, const char *q,
                      event_row *r, const char **rest) noexcept nogil:
    """A head whose CPU is between these two."""
    cdef const char *name_end = before(p, bracket)
    cdef uint64_t pid
    cdef int code
    if name_end > p and name_end[-1] == c')':
        # record-tgid prints "(tgid)" here.
        while name_end > p and name_end[0] != c'(':
            name_end -= 1
        name_end = before(p, name_end)
    bracket = name_end
    while bracket > p and is_digit(bracket[-1]):
        bracket -= 1
    if bracket == p or bracket == name_end:
        return BAD_HEAD
    if read_dec(bracket, &pid) == NULL or pid > <uint64_t>0x7FFFFFFF:
        return BAD_PID
    r.pid = <int32_t>pid
    if bracket[-1] == c'/':
        # perf script -F +pid: "process/thread".
        bracket -= 1
        while bracket > p and is_digit(bracket[-1]):
            bracket -= 1
    if bracket == p or (bracket[-1] != c'-' and bracket[-1] != c' '):
        return BAD_HEAD
    name_end = before(p, bracket - 1)
    q = past_blanks(q)
    r.flags = 0
    if not is_digit(q[0]):
        bracket = <const char *>memchr(q, c' ', e - q)
        if bracket == NULL:
            return BAD_HEAD
        r.flags = <uint16_t>flag_bits(q, bracket - q)
        q = bracket
    code = read_time(q, &r.time, rest)
    if code == OK:
        while p < name_end and p[0] == c' ':
            p += 1
        r.comm = <uint16_t>intern_comm(s, p, name_end - p)
    return code


cdef inline const char *before(const char *start, const char *p) noexcept nogil:
    """Where the blanks before a place begin."""
    while p > start and p[-1] == c' ':
        p -= 1
    return p


cdef int read_pairs(const char *p, const char *e, int64_t *values, uint64_t *have) noexcept nogil:
    """Collect known ``key=value`` pairs; what is not one is passed over."""
    cdef const char *start
    cdef const char *q
    cdef uint64_t value
    cdef bint negative
    cdef int key
    while p < e:
        p = past_blanks(p)
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
        key = number_of(&key_names, start, p - start)
        p += 1
        if p < e and p[0] == c'"':
            start = p + 1
            p = <const char *>memchr(start, c'"', e - start)
            if p == NULL:
                return BAD_FIELD
            if key == K_ZONE:
                values[K_ZONE] = number_of(&zone_names, start, p - start)
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
            values[key] = <int64_t>(0 - value if negative else value)
            have[0] |= <uint64_t>1 << key
            p = q
        while p < e and p[0] != c' ':
            p += 1
    return OK


cdef void see_first_page(parser *s, uint64_t page, uint64_t pfn) noexcept nogil:
    """Where the first struct page is, by an address of one.

    trace-cmd adds the page's number to it and not that many structs.  It is aligned, to 1 GiB on
    x86 (arch/x86/mm/kaslr.c, every release), which tells the two apart, but for few numbers.
    """
    cdef bint as_kernel = (page - (pfn << 6)) % FIRST_PAGE_ALIGNED == 0
    if as_kernel != ((page - pfn) % FIRST_PAGE_ALIGNED == 0):
        s.vmemmap = page - (pfn << 6 if as_kernel else pfn)
        s.has_vmemmap = True


cdef const char *read_page_fields(parser *s, const char *p, const char *e,
                                  event_row *r) noexcept nogil:
    """Fields of the five page tracepoints, as the kernel prints them; NULL if they are not that.

    Where they end, which is a blank or the end of a line; the text may go on with others.
    """
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
                    see_first_page(s, page, <uint64_t>r.a)
        if e - p > 16 and p[16] == c' ' and not has_control(load8(p)) \
                and not has_control(load8(p + 8)):
            p += 17
        else:
            while <unsigned char>p[0] > c' ':
                p += 1
            if p[0] != c' ':
                return NULL
            p += 1
    if not at(p, e, b"pfn=", 4):
        return NULL
    p = read_pfn(p + 4, &r.a)
    if p == NULL or not at(p, e, b" order=", 7):
        return NULL
    p = read_small(p + 7, &r.b)
    r.c = 0
    r.d = 0
    if p != NULL and r.event != EV_FREE and r.event != EV_FREE_BATCHED:
        if not at(p, e, b" migratetype=", 13):
            return NULL
        p = read_small(p + 13, &r.c)
        if p != NULL and r.event == EV_ZONE_LOCKED and at(p, e, b" percpu_refill=", 15):
            p = read_small(p + 15, &r.d)
    if p == NULL or (p < e and p[0] != c' ' and p[0] != c'\n') or r.a < 0 \
            or not 0 <= r.b <= MAX_ORDER_READ or not 0 <= r.c <= MAX_TYPE_READ:
        return NULL
    if r.event == EV_ALLOC and r.a == 0:
        r.a = -1    # a failed request
    elif r.event == EV_ALLOC and r.c != MOVABLE:
        q = <const char *>memchr(p, c'\n', e - p)
        r.d = is_charged(p, e if q == NULL else q)
    return p


cdef int64_t last_pid(const char *p, const char *e, const char *key) noexcept nogil:
    """The task that a line names last by this key, after names that may hold anything; 0 none."""
    cdef uint64_t pid
    cdef const char *q = e
    cdef Py_ssize_t size = strlen(key)
    while q > p:
        q -= 1
        if at(q, e, key, size):
            q = read_dec(q + size, &pid)
            return <int64_t>pid if q != NULL and pid < MAX_PFN else 0
    return 0


cdef const char *last_arrow(const char *p, const char *e) noexcept nogil:
    """Where " ==> " of a sched_switch is, after which is who gets the CPU; or NULL."""
    cdef const char *q = e
    while q > p:
        q -= 1
        if at(q, e, b" ==> ", 5):
            return q
    return NULL


cdef void read_switch(const char *p, const char *e, event_row *r) noexcept nogil:
    """Who gets the CPU, and whether who loses it goes on later where it was stopped.

    As the kernel prints it; ``name:pid [prio] state ==> name:pid [prio]``, as tools do;
    or raw, with no arrow and a number for the state.
    """
    cdef const char *arrow = last_arrow(p, e)
    cdef const char *q = e
    r.a = last_pid(p, e, b"next_pid=")
    if arrow == NULL:
        while q > p and not at(q, e, b" next_comm=", 11):
            q -= 1
        arrow = q
    elif not at(arrow + 5, e, b"next_comm=", 10):
        q = before(arrow, e)
        while q > arrow and q[-1] != c'[':
            q -= 1
        q = before(arrow, max(arrow, q - 1))
        while q > arrow and is_digit(q[-1]):
            q -= 1
        r.a = last_pid(q - 1, e, b":") if q > arrow else 0
    q = arrow
    while q > p and q[-1] != c'=' and q[-1] != c' ':
        q -= 1
    r.b = q[0] == c'R' or (
        is_digit(q[0]) and read_pfn(q, &r.c) != NULL and r.c >= 0 and r.c & STATES == 0)
    r.c = 0


cdef int read_fields(parser *s, const char *p, const char *e, event_row *r) noexcept nogil:
    """Fields of any event but the five, or of these in another order or spacing."""
    cdef int64_t values[KEYS]
    cdef uint64_t have = 0
    cdef const event_form *form = &forms[r.event]
    cdef int64_t *row
    cdef int code, i, key
    if r.event == EV_MARKER:
        s.markers[s.nr_markers] = marker_span(s.nr_rows, p - s.base, e - p)
        s.nr_markers += 1
        return OK
    if r.event == EV_WORK_START or r.event == EV_WORK_END:
        # "work struct ADDRESS: function NAME"; 1 for the vmstat worker.
        r.a = e - p > 13 and memcmp(e - 13, b"vmstat_update", 13) == 0
        return OK
    if r.event == EV_EXEC or r.event == EV_EXIT:
        # comm= may hold anything, blanks and equal signs included.
        return OK
    if r.event == EV_FORK:
        r.a = last_pid(p, e, b"child_pid=")
        return OK
    if r.event == EV_SWITCH:
        read_switch(p, e, r)
        return OK
    for i in range(KEYS):
        values[i] = -1
    code = read_pairs(p, e, values, &have)
    if code != OK:
        return code
    if form.probe and told_by_name(have):
        r.event += EV_HIT
        return OK
    if r.event < EV_EXTFRAG and not have >> K_PAGE & 1:
        # Fields as they are recorded: of a batch all are of order 0, no page is all ones.
        if r.event == EV_FREE_BATCHED and not have >> K_ORDER & 1:
            values[K_ORDER] = 0
            have |= <uint64_t>1 << K_ORDER
        if r.event == EV_ALLOC and values[K_PFN] == -1:
            values[K_PFN] = 0
    i = 0
    while form.needs[i] != NO_KEY:
        key = form.needs[i]
        if not have >> key & 1:
            return BAD_FIELD
        if not ranges[key].least <= values[key] <= ranges[key].most:
            return ranges[key].wrong
        i += 1
    r.a = values[form.column[0]]
    r.b = values[form.column[1]]
    r.c = values[form.column[2]]
    r.d = values[form.column[3]]
    if r.event < EV_EXTFRAG:
        r.c = max(r.c, <int64_t>0)
        r.d = max(r.d, <int64_t>0)
        if r.event == EV_ALLOC and r.a == 0:
            r.a = -1    # a failed request
        elif r.event == EV_ALLOC and r.c != MOVABLE:
            r.d = is_charged(p, e)
    elif r.event == EV_EXTFRAG:
        r.d = pack_extfrag(values[K_FORDER], values[K_FMT], max(values[K_OWN], <int64_t>0))
    elif r.event == EV_ALLOC_PAGES_BULK_RET and not 0 <= r.d < MAX_PFN:
        return BAD_FIELD
    elif r.event == EV_FREE_CONTIG and r.d < 1:
        return BAD_FIELD
    elif r.event == EV_RMQUEUE_BULK:
        values[K_PCP] = values[K_LIST]
    if form.probe:
        r.probe = <int32_t>(s.probes_before + s.nr_probes)
        row = s.probes + s.nr_probes * P_COLUMNS
        for i in range(P_COLUMNS):
            row[i] = values[i]
        s.nr_probes += 1
    return OK


cdef inline bint told_by_name(uint64_t have) noexcept nogil:
    """Whether a probe says that a function was called, and of the lists not more than which ones.

    So do those of `record`, which knows no layout of a struct: as a hit of the function tracer.
    """
    cdef uint64_t of = <uint64_t>1 << K_PCP | <uint64_t>1 << K_OFCPU
    return (have & of) != 0 and not have & ~(of | <uint64_t>1 << K_N | <uint64_t>1 << K_PINDEX)


cdef int find_name(const char *p, Py_ssize_t n) noexcept nogil:
    """Event id of a name, or 0; compiler suffixes of functions do not count."""
    cdef const char *dot = <const char *>memchr(p, c'.', n)
    if dot != NULL and dot > p:
        n = dot - p
    return max(number_of(&event_names, p, n), 0)


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
            if other > value:
                s.overwritten = max(s.overwritten, <int64_t>(other - value))
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
    q = past_blanks(p + (p[0] == c'\t'))
    if at(q, e, b"=> ", 3) or (p[0] == c'\t' and hex_digit(q[0]) >= 0):
        return BLANK    # who called, as trace-cmd and the kernel print it, and perf
    if at(p, e, b"cpus=", 5) or at(p, e, b"version = ", 10):
        return BLANK
    if at(p, e, b"CPU ", 4) and e - p > 9 and memcmp(e - 8, b"is empty", 8) == 0:
        return BLANK
    return BAD_HEAD


cdef inline int page_event(const char **p, const char *e) noexcept nogil:
    """Which of the five frequent events begins here, and what follows its name; or 0."""
    if not passes(p, e, b"mm_page_", 8):
        return 0
    if passes(p, e, b"alloc: ", 7):
        return EV_ALLOC
    if passes(p, e, b"free: ", 6):
        return EV_FREE
    if passes(p, e, b"free_batched: ", 14):
        return EV_FREE_BATCHED
    if passes(p, e, b"alloc_zone_locked: ", 19):
        return EV_ZONE_LOCKED
    if passes(p, e, b"pcpu_drain: ", 12):
        return EV_PCPU_DRAIN
    return 0


cdef inline void count_event(parser *s, const event_row *r) noexcept nogil:
    if s.events == 0:
        s.last_time = r.time
    s.events += 1
    if r.time < s.last_time and s.back_line == 0:
        s.back_line = s.line
        s.back_from = s.last_time
        s.back_to = r.time
    s.last_time = r.time
    s.max_cpu = max(s.max_cpu, <int>r.cpu)
    s.max_pid = max(s.max_pid, r.pid)


cdef inline bint usual_head(parser *s, const char *p, const char *end, event_row *r,
                            const char **rest) noexcept nogil:
    """`read_head` of what the kernel prints: processes of up to 7, CPUs of up to 3 digits.

    False if it is something else.
    """
    cdef task_slot *task
    cdef const char *q
    cdef uint64_t value, name, name_end, pid
    if end - p < 64 or p[16] != c'-' or p[24] != c' ' or p[25] != c'[' or p[29] != c']' \
            or p[31] == c' ' or p[35] == c' ' or p[36] != c' ' or has_control(load8(p + 28)) \
            or not (is_digit(p[26]) and is_digit(p[27]) and is_digit(p[28])):
        return False
    r.cpu = <uint16_t>((p[26] - c'0') * 100 + (p[27] - c'0') * 10 + p[28] - c'0')
    r.flags = <uint16_t>flag_bits(p + 31, 5)
    task = &s.tasks[r.cpu % TASK_SLOTS]
    name = load8(p)
    name_end = load8(p + 8)
    pid = load8(p + 16)
    if task.text[0] != name or task.text[1] != name_end or task.text[2] != pid:
        if has_control(name) or has_control(name_end) or has_control(pid) \
                or read_dec(p + 17, &value) == NULL:
            return False
        task.text[0] = name
        task.text[1] = name_end
        task.text[2] = pid
        task.pid = <int32_t>value
        q = past_blanks(p)
        task.comm = <uint16_t>intern_comm(s, q, p + 16 - q)
    r.pid = task.pid
    r.comm = task.comm
    return read_time(p + 37, &r.time, rest) == OK


cdef inline const char *usual_event(parser *s, const char *p, const char *end,
                                    event_row *r) noexcept nogil:
    """Read one of the five events, just as the kernel prints it; where its line ends, or NULL."""
    r.event = <uint16_t>page_event(&p, end)
    if not r.event:
        return NULL
    p = read_page_fields(s, p, end, r)
    if p == NULL or p[0] == c'\n':
        return p
    return <const char *>memchr(p, c'\n', end - p)


cdef int read_line(parser *s, const char *p, const char *e, const char *q,
                   event_row *r) noexcept nogil:
    """Read any line, without its newline at *e*; *q*: its event's name, where that is known."""
    cdef const char *name
    cdef int code
    if e > p and e[-1] == c'\r':
        e -= 1
    if p == e:
        return BLANK
    if q == NULL:
        if p[0] == c'#':
            return read_heading(s, p, e)
        code = read_head(s, p, e, r, &q)
        if code != OK:
            return BLANK if code == BAD_HEAD and read_heading(s, p, e) == BLANK else code
    if q >= e:
        return BAD_HEAD
    name = q
    while is_digit(name[0]):
        name += 1
    if name > q and name[0] == c' ':
        q = past_blanks(name)   # perf script -F +period
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
    r.a = r.b = r.c = r.d = 0
    if not r.event and at(q, e, b": ", 2):
        # trace-cmd names the kinds of lines that ftrace itself writes.
        if at(name, q, b"print", 5) and q - name == 5:
            name = past_blanks(q + 1)
            if at(name, e, b"tracing_mark_write: ", 20):
                r.event = EV_MARKER
                q = name + 18
        elif at(name, q, b"function", 8) and q - name == 8:
            name = q = past_blanks(q + 1)
            while q < e and q[0] != c' ':
                q += 1
            if at(q, e, b" <-- ", 5):
                r.event = <uint16_t>find_name(name, q - name)
                if r.event:
                    r.event |= EV_HIT
                    r.a = at(q + 5, e, b"vmstat_update", 13)
            return OK
    if at(q, e, b" <-", 3):
        # A hit of the function tracer; a = 1 if the vmstat worker called.
        if r.event:
            r.event |= EV_HIT
            r.a = at(q + 3, e, b"vmstat_update", 13)
    elif r.event and (q == e or q[0] != c':'):
        return BAD_FIELD
    elif r.event:
        q = past_blanks(q + 1)
        if r.event >= EV_EXTFRAG or read_page_fields(s, q, e, r) == NULL:
            code = read_fields(s, q, e, r)
            if code != OK:
                return code
    return OK


cdef int parse_lines(parser *s, const char *text, Py_ssize_t length,
                     Py_ssize_t *used) noexcept nogil:
    """Parse whole lines until the text or the room for rows ends.

    Every line of *text* ends in a newline.  *used* is where to go on.
    """
    cdef const char *p = text
    cdef const char *end = text + length
    cdef const char *e
    cdef const char *q
    cdef event_row *r
    cdef int code
    s.base = text
    while p < end:
        if s.nr_rows >= s.max_rows or s.nr_probes >= s.max_probes \
                or s.nr_markers >= MAX_MARKERS:
            used[0] = p - text
            return FULL
        s.line += 1
        r = s.rows + s.nr_rows
        r.line = s.line
        r.probe = -1
        q = e = NULL
        code = OK
        if usual_head(s, p, end, r, &q):
            e = usual_event(s, q, end, r)
        if e == NULL:
            e = <const char *>memchr(p, c'\n', end - p)
            code = read_line(s, p, e, q, r)
        if code == OK:
            count_event(s, r)
            s.nr_rows += r.event != 0
        elif code < 0:
            used[0] = p - text
            if memchr(p, 0, e - p) != NULL:
                return BAD_NUL
            return code
        p = e + 1
    used[0] = length
    return OK


_fill_tables()


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

    def __init__(self, rows, probes, spilled=False, event=None):
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

    def turn_into(self, rows, number):
        """Make these rows those of another event."""
        self.rows["event"][rows] = number
        if self._event is not None:
            self._event[rows] = number


cdef enum:
    ROWS_PER_WRITE = 1 << 14    # to a file: they are still in the L2 cache
    BYTES_OF_LINE = 100     # or more, as a rule
    HUGE = 1 << 22          # of memory, from which on it may lie on huge pages [bytes]

#: Rows of a trace that are kept in memory [bytes]; more lie in a temporary file.
IN_MEMORY = 1 << 29


cdef class TraceReader:
    """Has read a trace, piece by piece; made by `read_trace`.

    Parameters
    ----------
    source : path-like or bytes
        A file (plain, gzip, zstd, xz, bzip2) or the text itself.
    progress : bool
        Show a tqdm bar on stderr, in bytes of the file read.

    Attributes
    ----------
    comms, markers : list of str
        Task names and marker texts by the ids in the rows.
    lost : int
        Events that the kernel says it lost: ``[LOST n EVENTS]`` lines and the
        difference of the heading's entries-written and entries-in-buffer.
    truncated : str or None
        The unfinished last line, which was left out.
    missing : int
        Events that the heading promises and the file does not have; below 0: those beyond it.
    backwards : (int, int, int) or None
        The first line of an earlier time than the event before it, and both times [ns].

    Raises
    ------
    InputError
        While it reads: a malformed line, with file and line number.
    """

    cdef parser s
    cdef object source
    cdef bint progress
    cdef object file
    cdef object _comms
    cdef object _markers
    cdef list _names
    cdef readonly list markers
    cdef readonly object truncated

    def __cinit__(self, source, *, bint progress=False):
        self.source = source
        self.progress = progress
        self.file = None if isinstance(source, (bytes, bytearray, memoryview)) else Path(source)
        self._comms = np.zeros(COMM_SLOTS * sizeof(comm_slot), np.uint8)  # touched as names come
        self._markers = bytearray(MAX_MARKERS * sizeof(marker_span))
        cdef unsigned char[::1] comms = self._comms
        cdef unsigned char[::1] spans = self._markers
        self.s.comms = <comm_slot *>&comms[0]
        self.s.markers = <marker_span *>&spans[0]
        self.s.in_buffer = -1
        self.markers = []
        self._names = []

    cdef tuple _parse(self, const unsigned char[::1] text, rows, probes):
        """Parse whole lines into two of `_Growing`, as far as these have room.

        Returns the bytes used, and of the rows that came the events.
        """
        place = rows.room(len(text))
        cdef unsigned char[::1] into = place.view(np.uint8)
        cdef int64_t[:, ::1] told = probes.room(len(text))
        cdef Py_ssize_t i, used = 0, first = rows.n
        cdef int code
        cdef const char *p = <const char *>&text[0]
        cdef marker_span *span
        self.s.rows, self.s.max_rows = <event_row *>&into[0], len(place)
        self.s.probes, self.s.max_probes = &told[0, 0], len(told)
        self.s.nr_rows, self.s.nr_probes, self.s.nr_markers = first, probes.n, 0
        self.s.probes_before = probes.spilled
        with nogil:
            code = parse_lines(&self.s, p, text.shape[0], &used)
        if code < 0:
            raise InputError(_WHY[code], file=self.file, row=self.s.line)
        for i in range(self.s.nr_markers):
            span = &self.s.markers[i]
            self.s.rows[span.row].a = len(self.markers)
            self.markers.append(p[span.start:span.start + span.length].decode("utf-8", "replace"))
        rows.n, probes.n = self.s.nr_rows, self.s.nr_probes
        return used, place["event"][first:rows.n].copy()

    cdef tuple _read(self):
        """All events, 64 bytes each, and the reader itself.

        Beyond `IN_MEMORY` bytes they lie in a temporary file (of ``TMPDIR``), which nobody else
        sees and which ends with them.
        """
        rows, probes, event = _Growing((), EVENT), _Growing((P_COLUMNS,), np.int64), []
        for text in self._texts():
            while len(text):
                used, some = self._parse(text, rows, probes)
                event.append(some)
                text = text[used:]
        event = np.concatenate(event) if event else np.empty(0, np.uint16)
        return Events(rows.whole(), probes.whole(), rows.file is not None, event), self

    def _texts(self):
        """The text in pieces of whole lines."""
        carry = b""
        for piece in self._pieces():
            end = piece.rfind(b"\n") + 1
            if carry and end:
                first = piece.find(b"\n") + 1
                yield memoryview(self._checked(carry + piece[:first]))
                yield memoryview(piece)[first:end]
                carry = b""
            elif end:
                yield memoryview(piece)[:end]
            carry = self._checked(carry + piece[end:])
        if carry:
            self.truncated = carry.decode("utf-8", "replace")

    def _checked(self, line):
        if len(line) > MAX_LINE:
            raise InputError(f"a line of more than {MAX_LINE} bytes", file=self.file,
                             row=self.s.line + 1)
        return line

    def _pieces(self):
        if self.file is None:
            yield bytes(self.source)
        elif not self.progress:
            yield from open_text(self.file)
        else:
            from tqdm import tqdm

            with tqdm(desc=self.file.name, unit="B", unit_scale=True) as bar:
                for piece in open_text(self.file):
                    yield piece
                    bar.update(len(piece))

    @property
    def comms(self):
        """Task names by id."""
        cdef Py_ssize_t i
        cdef comm_slot *slot
        if len(self._names) == self.s.nr_comms:
            return self._names[:]
        found = [""] * self.s.nr_comms
        for i in range(COMM_SLOTS):
            slot = &self.s.comms[i]
            if slot.number:
                found[slot.number - 1] = (<char *>&slot.lo)[:16].rstrip(b"\0").decode(
                    "utf-8", "replace")
        self._names = found
        return found[:]

    @property
    def lost(self):
        return self.s.lost + self.s.overwritten

    @property
    def missing(self):
        return 0 if self.s.in_buffer < 0 else self.s.in_buffer - self.s.events

    @property
    def backwards(self):
        cdef parser *s = &self.s
        return (s.back_line, s.back_from, s.back_to) if s.back_line else None

    @property
    def numbers(self):
        """Lines, events, largest CPU and process, and the address of the first struct page, if it
        was told."""
        return {
            "lines": self.s.line, "events": self.s.events, "max_cpu": self.s.max_cpu,
            "max_pid": self.s.max_pid,
            "vmemmap": self.s.vmemmap if self.s.has_vmemmap else None,
        }


def read_trace(source, *, progress=False):
    """Read a trace: (`Events`, `TraceReader`), the latter with its counters."""
    return (<TraceReader>TraceReader(source, progress=progress))._read()


class _Growing:
    """Records that come one after the other.

    Attributes
    ----------
    n : int
        Those in memory.
    spilled : int
        Those before them, in ``file``: all together were more than `IN_MEMORY` bytes.
    """

    def __init__(self, shape, dtype):
        self._none = np.empty((0, *shape), dtype)
        self._bytes = np.empty(shape, dtype).nbytes
        self._size = self.n = self.spilled = 0
        self._map = self.file = None

    def room(self, text):
        """An array with those in memory and room for one more, if not for all of a text."""
        if self.n == self._size:
            limit = max(IN_MEMORY // self._bytes, 1)
            if self.file is None and self._size < limit:
                self._resize(min(max(2 * self._size, text // BYTES_OF_LINE + 1), limit))
            else:
                self._spill()
                self._resize(min(limit, ROWS_PER_WRITE))
        return np.frombuffer(self._map, self._none.dtype).reshape(-1, *self._none.shape[1:])

    def _resize(self, n):
        """Room for *n*, which costs nothing before it is touched; it grows without a copy."""
        size = max(n * self._bytes, 1)
        if self._map is None:
            self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        else:
            self._map.resize(size)
        if size >= HUGE:
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self._size = n

    def _spill(self):
        try:
            if self.file is None:
                self.file = tempfile.TemporaryFile(prefix="pcpmodel-")
            self.file.write(memoryview(self._map)[:self.n * self._bytes])
            self.file.flush()
        except OSError as error:
            raise InputError(
                f"no room for the events of this trace in {tempfile.gettempdir()} "
                f"({error.strerror}); TMPDIR may name another place") from error
        self.spilled += self.n
        self.n = 0

    def whole(self):
        if self.file is not None:
            self._spill()
            self._map = mmap.mmap(self.file.fileno(), 0)
        elif self.n:
            self._resize(self.n)
        else:
            return self._none
        return np.frombuffer(self._map, self._none.dtype).reshape(-1, *self._none.shape[1:])

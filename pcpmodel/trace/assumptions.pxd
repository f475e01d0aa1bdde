# SPDX-License-Identifier: GPL-2.0-only
"""What a trace tells late or not at all; `assumptions.pyx` says of each what it is."""

cdef enum:
    E_OVERTAKEN = 1
    E_LATE = 2
    E_IN_FLIGHT = 3
    E_MIGRATED = 4
    E_ZONE_FLAGS = 5
    E_TRYLOCK = 6
    E_DIRECT = 7
    E_MOVED = 8
    E_DELAYED = 9
    E_EXHAUSTED = 10
    E_RELOCK = 11
    E_SILENT = 12
    E_TOGETHER = 13
    E_EMPTIED = 14
    E_REMOTE = 15
    E_UNSEEN = 16
    E_COMPACTED = 17
    E_READ = 18
    E_HIDDEN = 19

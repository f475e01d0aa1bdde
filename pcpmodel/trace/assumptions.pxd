# SPDX-License-Identifier: GPL-2.0-only
"""What a trace tells late or not at all; `assumptions.pyx` says of each what it is."""

cdef enum:
    E_OVERTAKEN = 1, E_LATE, E_IN_FLIGHT, E_MIGRATED, E_ZONE_FLAGS, E_TRYLOCK, E_DIRECT
    E_MOVED, E_DELAYED, E_EXHAUSTED, E_RELOCK, E_SILENT, E_TOGETHER, E_EMPTIED, E_REMOTE
    E_UNSEEN, E_COMPACTED, E_READ, E_HIDDEN, E_BETWEEN, E_HIGH_MAX, E_PUT_BACK

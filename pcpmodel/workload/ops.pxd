"""The operations of a program and what bounds it."""

# SPDX-License-Identifier: GPL-2.0-only

cdef enum:
    # Operations of a program
    OP_ALLOC = 0  # n blocks, ps each
    OP_FREE = 1  # n blocks, ps each
    OP_WORK = 2  # busy for ps, times register reg if it is one
    OP_IDLE = 3  # asleep, the same
    OP_SEND = 4  # message on channel n; waits while the channel is full
    OP_RECV = 5  # message from channel n; waits for one
    OP_GIVE = 6  # n blocks held (or ALL, never more) leave with the next message
    OP_TAKE = 7  # n blocks (or ALL, never more) that messages brought and nobody has taken
    OP_DRAW = 8  # register <- a value of a table
    OP_LOOP = 9  # back to target, n times in all (0: for ever)
    OP_SCORE = 10  # n units of work done
    OP_MAYBE = 11  # with a chance of n / 2**30 go on, else to target
    OP_PICK = 12  # to one of the first n places of table target, equally likely
    OP_KSWAPD = 13  # sleeps until there is a cluster of n pages to reclaim
    OP_BARRIER = 14  # until all tasks that name barrier n are there, and ps
    OP_PHASE = 15  # what follows is of phase n
    OP_REST = 16  # asleep for n / 65536 of the time since the last rest, times a value of table
    OP_LRU = 17  # the pages that wait for the LRU lock do so no longer
    OP_END = 18

    ALL = -1  # every block held
    HOME = 0  # zones that an operation may name
    PEER = 1
    AS_ALLOCATED = 0  # which of the blocks held a free takes: the oldest
    REVERSED = 1  # the newest
    SHUFFLED = 2  # any
    CHANNELS = 4  # of one task
    TABLE = 1024  # equally likely values of a distribution
    REGISTERS = 4
    LOOPS = 4
    BARRIERS = 1024  # of a workload
    PHASES = 16  # of a workload; the first is no phase
    BLOCK_KINDS = 33  # that it may hold: by order and migratetype
    KINDS_ROOM = 48  # the same in whole cache lines; what has lists is in the first
